// SPDX-License-Identifier: Apache-2.0 OR MIT
// Noise as a pure function of (kind, key, element): three kinds.
//
//   normal     Philox4x32-10 and Box-Muller with own polynomials (no libm), float32
//   quantile8  bytes of the same generator through a 256-entry Gaussian quantile table
//   table      the reference's 250,000,000 values of NumPy's RandomState(123).randn
//
// Elements are numbered in canonical parameter order (nn/network.h). Equal bits on every CPU and
// instruction set: only IEEE add, subtract, multiply, divide, square root and conversions, no fused
// multiply-add. The mapping below is part of every genome's identity and never changes.
//
// Counter kinds. One Philox4x32-10 block is
//   philox(counter = {low32(block), high32(block), 0, 16 + kind}, key = {low32(key), high32(key)})
// (16 + kind keeps the streams apart from core/rng.h, which uses 0-3). Group g holds the 64 words
// of blocks 16 g ... 16 g + 15 as W[word][block], word 0-3, block 0-15.
//
//   normal: 64 elements a group; element 16 w + b of a group is z[w][b], where for w = 0 and 2
//     u = (W[w][b] + 1/2) / 2^32 rounded to float32,     r = sqrt(-2 ln u)     (u > 0: finite)
//     a = (pi/2) (q + t),  q = W[w+1][b] >> 30,  t = ((W[w+1][b] mod 2^30) - 2^29) / 2^30
//     z[w][b] = r cos a,   z[w+1][b] = r sin a;   |z| <= 6.77
//   quantile8: 256 elements a group; element 64 w + 4 b + i of a group is quantile(byte i of
//     W[w][b], lowest first) / 31.983f with the table of evo/genome/noise_quantiles.h; |value|
//     <= 2.88.
//
// Table kind: e(key)[j] = table[key + j].
// Thread safety: all methods are const and may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/cpu.h"
#include "core/enum_names.h"
#include "evo/genome/genome.h"

namespace samara {

constexpr uint64_t kNoiseTableSize = 250'000'000;

constexpr EnumName<NoiseKind> kNoiseNames[] = {{NoiseKind::kNormal, "normal"},
                                               {NoiseKind::kQuantile8, "quantile8"},
                                               {NoiseKind::kTable, "table"}};
// without the kind that reads a table of 1 GB
constexpr EnumName<NoiseKind> kCounterNoiseNames[] = {{NoiseKind::kNormal, "normal"},
                                                      {NoiseKind::kQuantile8, "quantile8"}};
constexpr EnumName<InitKind> kInitNames[] = {{InitKind::kFanIn, "fan_in"},
                                             {InitKind::kUnitNorm, "unit_norm"},
                                             {InitKind::kUnitNormSmall, "unit_norm_0.01"},
                                             {InitKind::kXavier, "xavier"},
                                             {InitKind::kHe, "he"},
                                             {InitKind::kUniform, "uniform"}};
std::string_view Name(NoiseKind kind);

// The key of noise that an algorithm draws from `key`: of the table kind the start of a slice, a
// multiple of 64.
uint64_t NoiseKeyFor(NoiseKind kind, size_t parameter_count, uint64_t key);
// kConfig when the table has fewer values than a network parameters.
Status CheckNoise(NoiseKind kind, size_t parameter_count);

class Noise {
 public:
  virtual ~Noise() = default;
  // out[i] = e(key)[first + i].
  virtual void Fill(uint64_t key, size_t first, std::span<float> out) const = 0;
  // out[i] = base[i] + power * e(key)[first + i]; product rounded, then sum rounded. `base` is as
  // long as `out`, and may be `out`.
  virtual void Add(uint64_t key, float power, size_t first, std::span<const float> base,
                   std::span<float> out) const = 0;
  // Whether a slice has a high cost whatever its length, so that it is read at once.
  virtual bool prefers_long_slices() const { return false; }
};

// Shared and constant. The table kind draws each slice again unless the table is held in memory
// (evo/genome/noise_table.h). REQUIRES for it: key + first + size <= kNoiseTableSize; CheckKeys
// (evo/genome/genome.h) is how callers know.
const Noise& GetNoise(NoiseKind kind);

// One counter kind at a given level, for tests and benchmarks. REQUIRES: kind is not kTable and the
// CPU has `isa`.
std::unique_ptr<Noise> TEST_MakeNoise(NoiseKind kind, IsaLevel isa);

}  // namespace samara
