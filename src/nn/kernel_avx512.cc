// SPDX-License-Identifier: Apache-2.0 OR MIT
// The population kernel with AVX-512. Compiled with flags of its own: see kernel_ops.h.
#if defined(__x86_64__)
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

namespace samara::kernel {
namespace {

constexpr size_t kLanes = 16;
constexpr size_t kConvVectors = 4;
constexpr size_t kTileRows = 8, kTileVectors = 2;
constexpr size_t kProductRows = 12;
using Vec = __m512;

inline Vec Load(const float* p) { return _mm512_loadu_ps(p); }
inline void LoadPair(const float* p, Vec& low, Vec& high) {
  const __m512i words = _mm512_loadu_si512(p);
  low = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
  high = _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(-65536)));
}
inline Vec LoadBytes(const char* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline void Store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
// The low byte of each lane.
inline void StoreLowBytes(char* p, Vec v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_castps_si512(v)));
}
inline Vec Broadcast(float x) { return _mm512_set1_ps(x); }
inline Vec Fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
inline Vec Mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
inline Vec Div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
inline Vec Min(Vec a, Vec b) { return _mm512_min_ps(a, b); }  // the second operand when unordered
inline Vec Max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
inline uint32_t NonzeroLanes(Vec v) {
  return _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_NEQ_UQ);
}

}  // namespace
}  // namespace samara::kernel

#include "nn/kernel_impl.h"

const samara::kernel::Ops samara::kernel::kAvx512Ops = samara::kernel::kOps;
#endif
