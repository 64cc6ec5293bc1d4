// SPDX-License-Identifier: Apache-2.0 OR MIT
// The population kernel with AVX2 and FMA. Compiled with flags of its own: see kernel_ops.h.
#if defined(__x86_64__)
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

namespace samara::kernel {
namespace {

constexpr size_t kLanes = 8;
constexpr size_t kConvVectors = 2;
constexpr size_t kTileRows = 4, kTileVectors = 2;
constexpr size_t kProductRows = 6;
using Vec = __m256;

inline Vec Load(const float* p) { return _mm256_loadu_ps(p); }
inline void LoadPair(const float* p, Vec& low, Vec& high) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  low = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
  high = _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(-65536)));
}
inline Vec LoadBytes(const char* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline void Store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
// The low byte of each lane.
inline void StoreLowBytes(char* p, Vec v) {
  const __m256i low = _mm256_set1_epi32(0x0C080400);
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_castps_si256(v), low);
  const int halves[2] = {_mm256_extract_epi32(bytes, 0), _mm256_extract_epi32(bytes, 4)};
  __builtin_memcpy(p, halves, sizeof(halves));
}
inline Vec Broadcast(float x) { return _mm256_set1_ps(x); }
inline Vec Fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
inline Vec Add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
inline Vec Mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
inline Vec Div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
inline Vec Min(Vec a, Vec b) { return _mm256_min_ps(a, b); }  // the second operand when unordered
inline Vec Max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
inline uint32_t NonzeroLanes(Vec v) {
  return static_cast<uint32_t>(
      _mm256_movemask_ps(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_NEQ_UQ)));
}

}  // namespace
}  // namespace samara::kernel

#include "nn/kernel_impl.h"

const samara::kernel::Ops samara::kernel::kAvx2Ops = samara::kernel::kOps;
#endif
