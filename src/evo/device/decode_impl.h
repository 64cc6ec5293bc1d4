// Body of the kernel of decode_task.h, included by decode.cc and decode_gpu.cu.
#pragma once

#include "evo/device/decode_task.h"
#include "evo/genome/noise_element_impl.h"
#include "nn/device/place_impl.h"

namespace samara::device {
namespace {

SAMARA_DEVICE float InitialValue(const DecodeTask& t, size_t element, float noise) {
  const InitialTensor& tensor = t.initial[PartOf(t.initial, t.tensors, element)];
  return tensor.noise ? Mul(noise, tensor.scale) : tensor.value;
}

// A thread takes the elements of one block of each stream of noise.
template <typename Noise, typename Block>
SAMARA_DEVICE void DecodeBody(Block& block, const DecodeTask& t) {
  block.Threads([&](unsigned thread) {
    const size_t unit = size_t{block.x()} * block.size() + thread;
    const size_t group = unit / kNoiseBlocks;
    const unsigned number = static_cast<unsigned>(unit % kNoiseBlocks);
    float values[Noise::kElements], e[Noise::kElements];
    const auto element = [&](unsigned i) {
      return group * Noise::kGroup + Noise::Number(number, i);
    };
    if (group * Noise::kGroup >= t.place.size) return;
    if (t.base == nullptr) Noise::Draw(t.initial_key, unit, e);
    SAMARA_DEVICE_UNROLL
    for (unsigned i = 0; i < Noise::kElements; ++i) {
      const size_t at = element(i);
      values[i] = 0;
      if (at < t.place.size) values[i] = t.base != nullptr ? t.base[at] : InitialValue(t, at, e[i]);
    }
    for (unsigned m = 0; m < t.mutation_count; ++m) {
      Noise::Draw(t.mutations[m].key, unit, e);
      SAMARA_DEVICE_UNROLL
      for (unsigned i = 0; i < Noise::kElements; ++i)
        values[i] = Add(values[i], Mul(e[i], t.mutations[m].power));
    }
    SAMARA_DEVICE_UNROLL
    for (unsigned i = 0; i < Noise::kElements; ++i) {
      const size_t at = element(i);
      if (at >= t.place.size) continue;
      if (t.out != nullptr)
        t.out[at] = values[i];
      else
        Place<Block>(t.place, at, values[i]);
    }
  });
}

constexpr unsigned kDecodeThreads = 128;

inline unsigned DecodeBlocks(const DecodeTask& t) {
  const unsigned group = t.noise == 1 ? NormalBlock::kGroup : Quantile8Block::kGroup;
  const size_t units = (t.place.size + group - 1) / group * kNoiseBlocks;
  return static_cast<unsigned>((units + kDecodeThreads - 1) / kDecodeThreads);
}

template <typename Block>
SAMARA_DEVICE void DecodeAny(Block& block, const DecodeTask& t) {
  if (t.noise == 1)
    DecodeBody<NormalBlock>(block, t);
  else
    DecodeBody<Quantile8Block>(block, t);
}

}  // namespace
}  // namespace samara::device
