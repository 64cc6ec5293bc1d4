// SPDX-License-Identifier: Apache-2.0 OR MIT
// The counter noise of noise.h, one Philox block at a time, for devices: the operations of
// noise_kernel_impl.h on single numbers, so the bits are equal. Included by code that nvcc
// compiles.
#pragma once

#include "evo/genome/noise_quantiles.h"
#include "nn/device/code.h"

#define SAMARA_NOISE_INLINE SAMARA_DEVICE
#include "evo/genome/noise_polynomials_impl.h"

namespace samara::device {
namespace {

constexpr unsigned kNoiseBlocks = 16;  // Philox blocks of a group

#if defined(__CUDACC__)
struct QuantileTable {
  int8_t half[128];
};
constexpr QuantileTable CopyQuantiles() {
  QuantileTable table{};
  for (unsigned i = 0; i < 128; ++i) table.half[i] = kQuantileHalf[i];
  return table;
}
__device__ const QuantileTable gpu_quantiles = CopyQuantiles();
SAMARA_DEVICE int QuantileHalf(unsigned i) { return __ldg(&gpu_quantiles.half[i]); }
#else
SAMARA_DEVICE int QuantileHalf(unsigned i) { return kQuantileHalf[i]; }
#endif

// Philox4x32-10 of noise.h; kind: 1 normal, 2 quantile8.
SAMARA_DEVICE void DrawBlock(uint64_t key, uint64_t block, uint32_t kind, uint32_t (&c)[4]) {
  c[0] = static_cast<uint32_t>(block), c[1] = static_cast<uint32_t>(block >> 32);
  c[2] = 0, c[3] = 16 + kind;
  uint32_t low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
  SAMARA_DEVICE_UNROLL
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{c[0]} * 0xD2511F53, p1 = uint64_t{c[2]} * 0xCD9E8D57;
    const uint32_t c1 = c[1], c3 = c[3];
    c[0] = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ low, c[1] = static_cast<uint32_t>(p1);
    c[2] = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ high, c[3] = static_cast<uint32_t>(p0);
    low += 0x9E3779B9, high += 0xBB67AE85;
  }
}

struct ElementArithmetic {
  using F = float;
  SAMARA_DEVICE static float Add(float x, float y) { return device::Add(x, y); }
  SAMARA_DEVICE static float Mul(float x, float y) { return device::Mul(x, y); }
};
using Polynomials = NoisePolynomials<ElementArithmetic>;

SAMARA_DEVICE float MinusTwoLog(float u) {
  const uint32_t sqrt_half = 0x3f3504f3;
  const uint32_t bits = BitsOf(u) - sqrt_half;
  const float e = static_cast<float>(static_cast<int32_t>(bits) >> 23);
  return Polynomials::MinusTwoLog(e, Add(FloatOf((bits & 0x7fffff) + sqrt_half), -1.0f));
}

SAMARA_DEVICE void Normals(uint32_t radius, uint32_t angle, float& cosine, float& sine) {
  const float u = Add(Mul(static_cast<float>(radius >> 16), 0x1p-16f),
                      Add(Mul(static_cast<float>(radius & 0xffff), 0x1p-32f), 0x1p-33f));
  const float r = SquareRoot(MinusTwoLog(u));
  const float t =
      Mul(static_cast<float>(static_cast<int32_t>(angle & 0x3fffffff) - 0x20000000), 0x1p-30f);
  const float t2 = Mul(t, t);
  const float s = Polynomials::Sine(t, t2), c = Polynomials::Cosine(t2);
  const uint32_t difference =
      (BitsOf(s) ^ BitsOf(c)) & static_cast<uint32_t>(static_cast<int32_t>(angle << 1) >> 31);
  const uint32_t cosine_sign = (angle ^ (angle << 1)) & 0x80000000;
  const uint32_t sine_sign = angle & 0x80000000;
  cosine = Mul(r, FloatOf((BitsOf(c) ^ difference) ^ cosine_sign));
  sine = Mul(r, FloatOf((BitsOf(s) ^ difference) ^ sine_sign));
}

// Both kinds: kElements of a block, the number of an element in its group of kGroup, and values.
struct NormalBlock {
  static constexpr unsigned kElements = 4, kGroup = 64;
  static SAMARA_DEVICE unsigned Number(unsigned block, unsigned i) {
    return kNoiseBlocks * i + block;
  }
  static SAMARA_DEVICE void Draw(uint64_t key, uint64_t block, float (&e)[kElements]) {
    uint32_t w[4];
    DrawBlock(key, block, 1, w);
    Normals(w[0], w[1], e[0], e[1]);
    Normals(w[2], w[3], e[2], e[3]);
  }
};

struct Quantile8Block {
  static constexpr unsigned kElements = 16, kGroup = 256;
  static SAMARA_DEVICE unsigned Number(unsigned block, unsigned i) {
    return 4 * kNoiseBlocks * (i / 4) + 4 * block + i % 4;
  }
  static SAMARA_DEVICE void Draw(uint64_t key, uint64_t block, float (&e)[kElements]) {
    uint32_t w[4];
    DrawBlock(key, block, 2, w);
    SAMARA_DEVICE_UNROLL
    for (unsigned i = 0; i < kElements; ++i) {
      const unsigned byte = w[i / 4] >> 8 * (i % 4) & 0xff;
      const int q = byte < 128 ? -QuantileHalf(127 - byte) : QuantileHalf(byte - 128);
      e[i] = Div(static_cast<float>(q), kQuantileScale);
    }
  }
};

}  // namespace
}  // namespace samara::device
