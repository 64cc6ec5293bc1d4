// SPDX-License-Identifier: Apache-2.0 OR MIT
// The population kernel with AVX2 and FMA. Compiled with flags of its own: see kernel_ops.h.
#if defined(__x86_64__)
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

namespace samara::kernel {
namespace {

constexpr size_t kLanes = 8;
using Vec = __m256;

inline Vec Load(const float* p) { return _mm256_loadu_ps(p); }
inline void LoadPair(const float* p, Vec& low, Vec& high) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  low = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
  high = _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(-65536)));
}
inline void Store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
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
