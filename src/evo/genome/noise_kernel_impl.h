// SPDX-License-Identifier: Apache-2.0 OR MIT
// Body of the counter noise, included once by each noise_<level>.cc: the same operations on vectors
// as wide as that file's flags allow, so the bits are equal (mapping in noise.h).
// Compiled with instruction-set flags: no standard library code here.

#include "evo/genome/noise_kernel.h"
#include "evo/genome/noise_quantiles.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace samara {
namespace {

#if defined(__AVX512BW__)
constexpr size_t kBytes = 64;
#elif defined(__AVX2__)
constexpr size_t kBytes = 32;
#else
constexpr size_t kBytes = 16;
#endif
constexpr size_t kLanes = kBytes / 4;
constexpr size_t kBlocks = 16;  // Philox blocks of a group
constexpr int kRounds = 10;

typedef float F32 __attribute__((vector_size(kBytes)));
typedef int32_t I32 __attribute__((vector_size(kBytes)));
typedef uint32_t U32 __attribute__((vector_size(kBytes)));
typedef uint64_t U64 __attribute__((vector_size(kBytes)));
typedef int8_t I8 __attribute__((vector_size(kBytes)));

#define SAMARA_INLINE [[gnu::always_inline]] inline

}  // namespace
}  // namespace samara

#define SAMARA_NOISE_INLINE SAMARA_INLINE
#include "evo/genome/noise_polynomials_impl.h"

namespace samara {
namespace {

// ---- what differs between instruction sets ----

// The 64-bit products of the low halves.
SAMARA_INLINE U64 MultiplyLow(U64 a, U64 b) {
#if defined(__AVX512BW__)
  return (U64)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (U64)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (U64)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
  return (a & 0xffffffff) * (b & 0xffffffff);
#endif
}

SAMARA_INLINE F32 SquareRoot(F32 x) {
#if defined(__AVX512BW__)
  return (F32)_mm512_maskz_sqrt_ps(0xffff, (__m512)x);
#elif defined(__AVX2__)
  return (F32)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__)
  return (F32)_mm_sqrt_ps((__m128)x);
#else
  for (size_t i = 0; i < kLanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

#if defined(__AVX2__)
// 16 entries of the half table in each 128-bit lane, for a shuffle by the low four bits.
SAMARA_INLINE I8 TableRow(int row) {
  const __m128i bytes = _mm_load_si128((const __m128i*)(kQuantileHalf + 16 * row));
#if defined(__AVX512BW__)
  return (I8)_mm512_maskz_broadcast_i32x4(0xffff, bytes);
#else
  return (I8)_mm256_broadcastsi128_si256(bytes);
#endif
}

SAMARA_INLINE I8 Shuffle(I8 table, I8 index) {
#if defined(__AVX512BW__)
  return (I8)_mm512_shuffle_epi8((__m512i)table, (__m512i)index);
#else
  return (I8)_mm256_shuffle_epi8((__m256i)table, (__m256i)index);
#endif
}

// a * b + c, rounded once.
SAMARA_INLINE F32 Fma(F32 a, F32 b, F32 c) {
#if defined(__AVX512BW__)
  return (F32)_mm512_maskz_fmadd_ps(0xffff, (__m512)a, (__m512)b, (__m512)c);
#else
  return (F32)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#endif
}

// quantile / kQuantileScale with the rounding of a division, which costs an order of magnitude
// more: a product, put right by its remainder (noise_test.cc compares all 256).
SAMARA_INLINE F32 Unscale(F32 quantile) {
  constexpr F32 kZero{};
  constexpr float kInverse = 1.0f / kQuantileScale;
  const F32 y = quantile * kInverse;
  return Fma(Fma(-y, kZero + kQuantileScale, quantile), kZero + kInverse, y);
}

// b where the sign bit of `choice` is set, else a.
SAMARA_INLINE I8 Blend(I8 a, I8 b, I8 choice) {
#if defined(__AVX512BW__)
  return (I8)_mm512_mask_blend_epi8(_mm512_movepi8_mask((__m512i)choice), (__m512i)a, (__m512i)b);
#else
  return (I8)_mm256_blendv_epi8((__m256i)a, (__m256i)b, (__m256i)choice);
#endif
}

// kQuantileHalf[index], 0 <= index < 128: eight rows, chosen by bits 4, 5, 6.
SAMARA_INLINE I8 LookUpHalf(I8 index) {
  const I8 bit4 = (I8)((U32)index << 3), bit5 = (I8)((U32)index << 2), bit6 = (I8)((U32)index << 1);
  I8 pair[4];
  for (int i = 0; i < 4; ++i) {
    pair[i] = Blend(Shuffle(TableRow(2 * i), index), Shuffle(TableRow(2 * i + 1), index), bit4);
  }
  return Blend(Blend(pair[0], pair[1], bit5), Blend(pair[2], pair[3], bit5), bit6);
}

// kLanes signed bytes, widened.
SAMARA_INLINE I32 Widen(const int8_t* bytes) {
#if defined(__AVX512BW__)
  return (I32)_mm512_maskz_cvtepi8_epi32(0xffff, _mm_loadu_si128((const __m128i*)bytes));
#else
  return (I32)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)bytes));
#endif
}
#else
SAMARA_INLINE I8 LookUpHalf(I8 index) {
  uint8_t bytes[kBytes];
  __builtin_memcpy(bytes, &index, kBytes);
  for (size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<uint8_t>(kQuantileHalf[bytes[i]]);
  __builtin_memcpy(&index, bytes, kBytes);
  return index;
}

SAMARA_INLINE F32 Unscale(F32 quantile) { return quantile / kQuantileScale; }

SAMARA_INLINE I32 Widen(const int8_t* bytes) {
  static_assert(kLanes == 4);
  return I32{bytes[0], bytes[1], bytes[2], bytes[3]};
}
#endif

// ---- the same for all ----

SAMARA_INLINE F32 ToFloat(I32 x) { return __builtin_convertvector(x, F32); }
SAMARA_INLINE F32 Load(const float* p) {
  F32 x;
  __builtin_memcpy(&x, p, kBytes);
  return x;
}
SAMARA_INLINE void Store(F32 x, float* p) { __builtin_memcpy(p, &x, kBytes); }

// Where an element goes: copied, or added with a power.
struct FillSink {
  float* out;
  SAMARA_INLINE void Put(size_t i, F32 value) const { Store(value, out + i); }
};
struct AddSink {
  float power;
  const float* base;
  float* out;
  SAMARA_INLINE void Put(size_t i, F32 value) const {
    Store(Load(base + i) + value * power, out + i);
  }
};

// The four output words of kLanes consecutive blocks.
struct Words {
  U32 word[4];
};

// Philox4x32-10 under one key. A state word lives in the low half of a 64-bit lane; what the
// products leave in the high half is never read. Two chains (even and odd blocks) run side by side.
class Philox {
 public:
  SAMARA_INLINE Philox(uint64_t key, uint32_t stream) : stream_(stream) {
    uint32_t low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < kRounds; ++round) {
      key_[round][0] = U64{} + low, key_[round][1] = U64{} + high;
      low += 0x9E3779B9, high += 0xBB67AE85;
    }
  }

  // Blocks block ... block + kLanes - 1.
  SAMARA_INLINE Words Draw(uint64_t block) const {
    U64 even[4], odd[4];
    Start(block, even);
    Start(block + 1, odd);
    for (int round = 0; round < kRounds; ++round) {
      Round(round, even);
      Round(round, odd);
    }
    Words words;
    for (int w = 0; w < 4; ++w) words.word[w] = (U32)((even[w] & 0xffffffff) | odd[w] << 32);
    return words;
  }

 private:
  SAMARA_INLINE void Start(uint64_t block, U64* c) const {
    U64 lane{};
    for (size_t i = 0; i < kLanes / 2; ++i) lane[i] = 2 * i;
    const U64 number = lane + block;
    c[0] = number, c[1] = number >> 32, c[2] = U64{}, c[3] = U64{} + stream_;
  }
  SAMARA_INLINE void Round(int round, U64* c) const {
    const U64 p0 = MultiplyLow(c[0], U64{} + 0xD2511F53),
              p1 = MultiplyLow(c[2], U64{} + 0xCD9E8D57);
    c[0] = (p1 >> 32) ^ c[1] ^ key_[round][0], c[1] = p1;
    c[2] = (p0 >> 32) ^ c[3] ^ key_[round][1], c[3] = p0;
  }

  U64 key_[kRounds][2];
  uint32_t stream_;
};

struct VectorArithmetic {
  using F = F32;
  template <typename Y>
  SAMARA_INLINE static F32 Add(F32 x, Y y) {
    return x + y;
  }
  template <typename Y>
  SAMARA_INLINE static F32 Mul(F32 x, Y y) {
    return x * y;
  }
};
using Polynomials = NoisePolynomials<VectorArithmetic>;

// -2 ln u for 2^-33 <= u <= 1.
SAMARA_INLINE F32 MinusTwoLog(F32 u) {
  constexpr int32_t kSqrtHalf = 0x3f3504f3;  // bits of sqrt(1/2)
  const I32 bits = (I32)u - kSqrtHalf;
  const F32 f = (F32)((bits & 0x7fffff) + kSqrtHalf) - 1.0f;
  return Polynomials::MinusTwoLog(ToFloat(bits >> 23), f);
}

struct Pair {
  F32 cosine, sine;
};

// Box-Muller of noise.h.
SAMARA_INLINE Pair Normals(U32 radius, U32 angle) {
  const F32 u = ToFloat((I32)(radius >> 16)) * 0x1p-16f +
                (ToFloat((I32)(radius & 0xffff)) * 0x1p-32f + 0x1p-33f);  // rounds once
  const F32 r = SquareRoot(MinusTwoLog(u));

  const F32 t = ToFloat((I32)(angle & 0x3fffffff) - 0x20000000) * 0x1p-30f;
  const F32 t2 = t * t;
  const F32 s = Polynomials::Sine(t, t2), c = Polynomials::Cosine(t2);

  // quadrant q: swap when odd; the cosine is negative for q = 1, 2 and the sine for q = 2, 3
  const U32 difference = ((U32)s ^ (U32)c) & (U32)((I32)(angle << 1) >> 31);
  const U32 cosine_sign = (angle ^ (angle << 1)) & 0x80000000, sine_sign = angle & 0x80000000;
  return {r * (F32)(((U32)c ^ difference) ^ cosine_sign),
          r * (F32)(((U32)s ^ difference) ^ sine_sign)};
}

template <typename Sink>
SAMARA_INLINE void NormalGroups(uint64_t key, uint64_t group, size_t groups, Sink sink) {
  const Philox philox(key, 16 + 1);
  for (size_t g = 0; g < groups; ++g) {
    for (size_t b = 0; b < kBlocks; b += kLanes) {
      const Words w = philox.Draw((group + g) * kBlocks + b);
      const Pair z01 = Normals(w.word[0], w.word[1]), z23 = Normals(w.word[2], w.word[3]);
      const size_t i = g * kNormalGroup + b;
      sink.Put(i, z01.cosine);
      sink.Put(i + kBlocks, z01.sine);
      sink.Put(i + 2 * kBlocks, z23.cosine);
      sink.Put(i + 3 * kBlocks, z23.sine);
    }
  }
}

// Bytes to quantiles: the lower half of the table mirrors the upper one.
SAMARA_INLINE I8 Quantiles(U32 word) {
  const I8 bytes = (I8)word;
  const I8 mirror = ~(bytes >> 7);  // all ones below 128
  return (LookUpHalf((bytes ^ mirror) & 0x7f) ^ mirror) - mirror;
}

template <typename Sink>
SAMARA_INLINE void Quantile8Groups(uint64_t key, uint64_t group, size_t groups, Sink sink) {
  const Philox philox(key, 16 + 2);
  for (size_t g = 0; g < groups; ++g) {
    for (size_t b = 0; b < kBlocks; b += kLanes) {
      const Words words = philox.Draw((group + g) * kBlocks + b);
      for (size_t w = 0; w < 4; ++w) {
        int8_t quantiles[kBytes];
        const I8 looked_up = Quantiles(words.word[w]);
        __builtin_memcpy(quantiles, &looked_up, kBytes);
        const size_t base = g * kQuantile8Group + w * 4 * kBlocks + 4 * b;
        for (size_t part = 0; part < 4; ++part) {
          const F32 value = Unscale(ToFloat(Widen(quantiles + part * kLanes)));
          sink.Put(base + part * kLanes, value);
        }
      }
    }
  }
}

void FillNormal(uint64_t key, uint64_t group, size_t groups, float* out) {
  NormalGroups(key, group, groups, FillSink{out});
}
void AddNormal(uint64_t key, uint64_t group, size_t groups, float power, const float* base,
               float* out) {
  NormalGroups(key, group, groups, AddSink{power, base, out});
}
void FillQuantile8(uint64_t key, uint64_t group, size_t groups, float* out) {
  Quantile8Groups(key, group, groups, FillSink{out});
}
void AddQuantile8(uint64_t key, uint64_t group, size_t groups, float power, const float* base,
                  float* out) {
  Quantile8Groups(key, group, groups, AddSink{power, base, out});
}

}  // namespace
}  // namespace samara
