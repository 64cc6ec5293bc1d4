// SPDX-License-Identifier: Apache-2.0 OR MIT
// Implementation shared by the instruction sets. The including file defines, in an unnamed
// namespace: Vec, kLanes and Load, LoadPair, Store, Broadcast, Fma(a, b, c) = a * b + c rounded
// once, Add, Mul, Div, Min(a, b) = a < b ? a : b, Max(a, b) = a > b ? a : b, NonzeroLanes (one bit
// per lane). Each is correctly rounded or exact, so the order of operations below fixes every bit.
//
// Zeros: an input that is zero adds nothing to a chain of finite numbers, except that it may turn a
// sum of -0 into +0. Activate therefore never returns -0, and a loop may skip zeros or not, as
// suits it. Parameters must be finite for the instruction sets to agree.
#pragma once

#include "nn/kernel_ops.h"

#if defined(__clang__)
#define SAMARA_UNROLL _Pragma("unroll")
#else
#define SAMARA_UNROLL _Pragma("GCC unroll 16")
#endif

namespace samara::kernel {
namespace {

// Vectors of output channels that a convolution keeps in registers per pixel.
constexpr size_t kConvVectors = 2;
constexpr size_t kConvBlock = kConvVectors * kLanes;
// Rows of a dense layer that pass through the accumulators together.
constexpr size_t kDenseRows = 8;

// tanh(x) = x P(x^2) / Q(x^2) on |x| <= 9.02, where tanh rounds to 1 beyond; a minimax fit of the
// relative error (2.1e-8 before rounding, at most 4.6 ulp after it).
inline Vec Tanh(Vec x) {
  constexpr float kP[] = {1.0f, 0.13379716873168945f, 0.0034940324258059263f,
                          2.0583445802913047e-05f, 1.3319017888591134e-08f};
  constexpr float kQ[] = {1.0f, 0.46713030338287354f, 0.025871066376566887f,
                          0.00032830893178470433f, 7.761997835586953e-07f};
  // the bound comes first, so that NaN passes
  const Vec bounded = Max(Broadcast(-9.02f), Min(Broadcast(9.02f), x));
  const Vec z = Mul(bounded, bounded);
  Vec p = Broadcast(kP[4]), q = Broadcast(kQ[4]);
  for (int i = 3; i >= 0; --i) {
    p = Fma(p, z, Broadcast(kP[i]));
    q = Fma(q, z, Broadcast(kQ[i]));
  }
  const Vec y = Div(Mul(bounded, p), q);
  return Max(Broadcast(-1.0f), Min(Broadcast(1.0f), y));
}

inline Vec Activate(Vec x, Act activation) {
  if (activation == Act::kRelu) {
    x = Max(Broadcast(0.0f), x);  // NaN passes
  } else if (activation == Act::kTanh) {
    x = Tanh(x);
  }
  return Add(x, Broadcast(0.0f));
}

// 64 bits from bit `start`.
inline uint64_t BitsAt(const uint64_t* bits, size_t start) {
  const uint64_t* word = bits + start / 64;
  const unsigned shift = start % 64;
  return word[0] >> shift | word[1] << 1 << (63 - shift);
}

// Where the windows of one group of pixels start. The last group repeats the last pixel.
struct Group {
  size_t window[kConvPixels];  // in `in`
  size_t out[kConvPixels];     // in `out`
  size_t valid;
};

inline Group MakeGroup(const ConvTask& t, size_t first) {
  Group group;
  const size_t pixels = t.out_height * t.out_width;
  group.valid = pixels - first < kConvPixels ? pixels - first : kConvPixels;
  for (size_t p = 0; p < kConvPixels; ++p) {
    const size_t pixel = first + (p < group.valid ? p : group.valid - 1);
    const size_t y = pixel / t.out_width, x = pixel % t.out_width;
    group.window[p] = y * t.step_row + x * t.step_column;
    group.out[p] = y * t.out_row + x * t.channels;
  }
  return group;
}

// masks[ky][word]: inputs of the window that are nonzero in any pixel of the group.
void GroupMasks(const ConvTask& t, const Group& group, uint64_t* masks) {
  for (size_t ky = 0; ky < t.kernel; ++ky) {
    for (size_t k = 0; k < t.run; k += 64) {
      uint64_t any = 0;
      for (size_t p = 0; p < kConvPixels; ++p) {
        any |= BitsAt(t.bits, group.window[p] + ky * t.in_row + k);
      }
      const size_t left = t.run - k;
      *masks++ = left < 64 ? any & ((uint64_t{1} << left) - 1) : any;
    }
  }
}

// The chains of one group of pixels and one block of channels: 12 accumulators.
inline void ConvTile(const ConvTask& t, const Group& group, const uint64_t* masks,
                     const float* weights, const float* bias,
                     Vec (&sum)[kConvPixels][kConvVectors]) {
  SAMARA_UNROLL
  for (size_t p = 0; p < kConvPixels; ++p) {
    SAMARA_UNROLL
    for (size_t v = 0; v < kConvVectors; ++v) sum[p][v] = Load(bias + v * kLanes);
  }
  for (size_t ky = 0; ky < t.kernel; ++ky) {
    for (size_t k = 0; k < t.run; k += 64) {
      const size_t offset = ky * t.in_row + k;
      const float* in[kConvPixels];
      SAMARA_UNROLL
      for (size_t p = 0; p < kConvPixels; ++p) in[p] = t.in + group.window[p] + offset;
      const float* block = weights + (ky * t.run + k) * kConvBlock;
      for (uint64_t mask = *masks++; mask != 0; mask &= mask - 1) {
        const size_t i = static_cast<size_t>(__builtin_ctzll(mask));
        Vec w[kConvVectors];
        SAMARA_UNROLL
        for (size_t v = 0; v < kConvVectors; ++v) w[v] = Load(block + i * kConvBlock + v * kLanes);
        SAMARA_UNROLL
        for (size_t p = 0; p < kConvPixels; ++p) {
          const Vec x = Broadcast(in[p][i]);
          SAMARA_UNROLL
          for (size_t v = 0; v < kConvVectors; ++v) sum[p][v] = Fma(x, w[v], sum[p][v]);
        }
      }
    }
  }
}

void StoreTile(const ConvTask& t, const Group& group, size_t channel,
               const Vec (&sum)[kConvPixels][kConvVectors]) {
  const size_t left = t.channels - channel;
  for (size_t p = 0; p < group.valid; ++p) {
    float* out = t.out + group.out[p] + channel;
    alignas(64) float tail[kConvBlock];
    float* to = left < kConvBlock ? tail : out;
    for (size_t v = 0; v < kConvVectors; ++v) {
      Store(to + v * kLanes, Activate(sum[p][v], t.activation));
    }
    for (size_t c = 0; to == tail && c < left; ++c) out[c] = tail[c];
  }
}

void Conv(const ConvTask& t) {
  const size_t pixels = t.out_height * t.out_width;
  const size_t words = t.kernel * ((t.run + 63) / 64);
  uint64_t* masks = t.masks;
  for (size_t first = 0; first < pixels; first += kConvPixels, masks += words) {
    GroupMasks(t, MakeGroup(t, first), masks);
  }
  // a block of channels keeps its weights near for all pixels
  for (size_t channel = 0; channel < t.channels; channel += kConvBlock) {
    const float* weights = t.weights + channel * t.kernel * t.run;
    masks = t.masks;
    for (size_t first = 0; first < pixels; first += kConvPixels, masks += words) {
      const Group group = MakeGroup(t, first);
      Vec sum[kConvPixels][kConvVectors];
      ConvTile(t, group, masks, weights, t.bias + channel, sum);
      StoreTile(t, group, channel, sum);
    }
  }
}

// Adds `kRows` weighted rows to all columns, and asks for the rows that come `kRows` later.
template <bool kBf16, size_t kRows>
void AddRows(const DenseTask& t, size_t first, size_t nonzero) {
  const size_t width = kBf16 ? t.columns / 2 : t.columns;  // of a row, in words
  const float* row[kRows];
  const float* next[kRows];
  Vec x[kRows];
  SAMARA_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    row[r] = t.weights + t.rows[first + r] * width;
    const size_t later = first + r + kRows;
    next[r] = t.weights + t.rows[later < nonzero ? later : nonzero - 1] * width;
    x[r] = Broadcast(t.values[first + r]);
  }
  if constexpr (kBf16) {
    for (size_t c = 0; c < width; c += kDensePad) {
      SAMARA_UNROLL
      for (size_t v = 0; v < kDensePad; v += kLanes) {
        float* out = t.out + 2 * (c + v);
        Vec low = Load(out), high = Load(out + kLanes);
        SAMARA_UNROLL
        for (size_t r = 0; r < kRows; ++r) {
          Vec w_low, w_high;
          LoadPair(row[r] + c + v, w_low, w_high);
          low = Fma(x[r], w_low, low);
          high = Fma(x[r], w_high, high);
        }
        Store(out, low);
        Store(out + kLanes, high);
      }
      SAMARA_UNROLL
      for (size_t r = 0; r < kRows; ++r) __builtin_prefetch(next[r] + c);
    }
    return;
  }
  for (size_t c = 0; c < t.columns; c += kDensePad) {
    SAMARA_UNROLL
    for (size_t v = 0; v < kDensePad; v += kLanes) {
      Vec sum = Load(t.out + c + v);
      SAMARA_UNROLL
      for (size_t r = 0; r < kRows; ++r) sum = Fma(x[r], Load(row[r] + c + v), sum);
      Store(t.out + c + v, sum);
    }
    SAMARA_UNROLL
    for (size_t r = 0; r < kRows; ++r) __builtin_prefetch(next[r] + c);
  }
}

template <bool kBf16>
void AddAllRows(const DenseTask& t, size_t nonzero) {
  size_t i = 0;
  for (; i + kDenseRows <= nonzero; i += kDenseRows) AddRows<kBf16, kDenseRows>(t, i, nonzero);
  for (; i < nonzero; ++i) AddRows<kBf16, 1>(t, i, nonzero);
}

size_t Dense(const DenseTask& t) {
  size_t nonzero = 0;
  for (size_t i = 0; i < t.count; ++i) {
    t.rows[nonzero] = static_cast<uint32_t>(i);
    t.values[nonzero] = t.in[i];
    nonzero += t.in[i] != 0.0f;
  }
  for (size_t c = 0; c < t.columns; c += kLanes) Store(t.out + c, Load(t.bias + c));
  if (t.bf16)
    AddAllRows<true>(t, nonzero);
  else
    AddAllRows<false>(t, nonzero);
  for (size_t c = 0; c < t.columns; c += kLanes) {
    Store(t.out + c, Activate(Load(t.out + c), t.activation));
  }
  return nonzero;
}

void NonzeroBits(const float* x, size_t n, uint64_t* bits) {
  size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    uint64_t word = 0;
    for (size_t j = 0; j < 64; j += kLanes) word |= uint64_t{NonzeroLanes(Load(x + i + j))} << j;
    bits[i / 64] = word;
  }
  if (i == n) return;
  bits[i / 64] = 0;
  for (; i < n; ++i) bits[i / 64] |= uint64_t{x[i] != 0.0f} << (i % 64);
}

constexpr Ops kOps = {kLanes, kConvBlock, Conv, Dense, NonzeroBits};

}  // namespace
}  // namespace samara::kernel
