// SPDX-License-Identifier: Apache-2.0 OR MIT
// How a canonical parameter gets into a network's bytes (PlaceTask in tasks.h), wherever its value
// comes from.
#pragma once

#include "nn/device/code.h"
#include "nn/device/tasks.h"

namespace samara::device {
namespace {

// As nn/network.h; no bits differ.
SAMARA_DEVICE uint16_t Bf16Bits(float x) {
  const uint32_t bits = BitsOf(x);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
SAMARA_DEVICE float ScaleOf(float magnitude) {
  const uint32_t bits = BitsOf(magnitude > 0x1p-100f ? magnitude : 0x1p-100f);
  const float scale = FloatOf(((bits >> 23) - 6) << 23);
  return magnitude > Mul(127.0f, scale) ? Mul(2.0f, scale) : scale;
}
SAMARA_DEVICE unsigned char Int8Bits(float x, float scale) {
  return static_cast<unsigned char>(BitsOf(Add(Mul(x, Div(1.0f, scale)), 0x1.8p23f)));
}

// Number of the last part that begins at `element` or before it. REQUIRES: the first does.
template <typename Part>
SAMARA_DEVICE unsigned PartOf(const Part* parts, unsigned count, size_t element) {
  unsigned low = 0, high = count;
  while (high - low > 1) {
    const unsigned middle = (low + high) / 2;
    if (parts[middle].first <= element)
      low = middle;
    else
      high = middle;
  }
  return low;
}

template <typename Block>
SAMARA_DEVICE void Place(const PlaceTask& t, size_t element, float value) {
  const unsigned index = PartOf(t.segments, t.segment_count, element);
  const Segment& s = t.segments[index];
  const size_t within = element - s.first;
  if (within >= s.count) return;
  if (t.measure) {
    if (s.format == Format::kInt8)
      Block::RaiseTo(&t.magnitudes[index], FloatOf(BitsOf(value) & 0x7fffffff));
    return;
  }
  const size_t row = within / s.columns, at = row * s.padded + within - row * s.columns;
  unsigned char* to = t.network + s.to;
  switch (s.format) {
    case Format::kFloat32:
      reinterpret_cast<float*>(to)[at] = value;
      break;
    case Format::kBf16:
      reinterpret_cast<uint16_t*>(to)[at] = Bf16Bits(value);
      break;
    case Format::kInt8: {
      const float scale = ScaleOf(t.magnitudes[index]);
      to[at] = Int8Bits(value, scale);
      if (within == 0) *reinterpret_cast<float*>(t.network + s.scale) = scale;
      break;
    }
  }
}

template <typename Block>
SAMARA_DEVICE void PlaceBody(Block& block, const PlaceTask& t) {
  block.Threads([&](unsigned thread) {
    const size_t element = size_t{block.x()} * block.size() + thread;
    if (element < t.size) Place<Block>(t, element, t.canonical[element]);
  });
}

}  // namespace
}  // namespace samara::device
