// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/layer_norm.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "nn/network.h"

namespace samara {
namespace {

// The sum of term(0) to term(n - 1).
template <typename Term>
float Sum(size_t n, const Term& term) {
  constexpr size_t kChains = 16;
  float chains[kChains] = {};
  size_t i = 0;
  for (; i + kChains <= n; i += kChains)
    for (size_t k = 0; k < kChains; ++k) chains[k] += term(i + k);
  for (size_t k = 0; i < n; ++i, ++k) chains[k] += term(i);
  float sum = 0;
  for (const float chain : chains) sum += chain;
  return sum;
}

}  // namespace

LayerNormPass LayerNorm::MakePass(size_t rows_max) const {
  return {AlignedFloats(rows_max * row_), std::vector<float>(rows_max)};
}

void LayerNorm::Forward(const float* __restrict scale, const float* __restrict shift, size_t rows,
                        float* sums, LayerNormPass& pass) const {
  CHECK(rows <= pass.inverse.size());
  const auto n = static_cast<float>(units_);
  for (size_t r = 0; r < rows; ++r) {
    float* __restrict x = sums + r * row_;
    float* __restrict normalized = pass.normalized.data() + r * row_;
    const float mean = Sum(units_, [x](size_t i) { return x[i]; }) / n;
    const float variance =
        Sum(units_, [x, mean](size_t i) { return (x[i] - mean) * (x[i] - mean); }) / n;
    const float inverse = 1 / std::sqrt(variance + kLayerNormEpsilon);
    for (size_t i = 0; i < units_; ++i) {
      normalized[i] = (x[i] - mean) * inverse;
      x[i] = normalized[i] * scale[i] + shift[i];
    }
    pass.inverse[r] = inverse;
  }
}

void LayerNorm::Backward(const float* __restrict scale, size_t rows, const LayerNormPass& pass,
                         float* delta, float* __restrict by_scale,
                         float* __restrict by_shift) const {
  if (by_scale != nullptr) {
    std::fill_n(by_scale, row_, 0.0F);
    std::fill_n(by_shift, row_, 0.0F);
  }
  const auto n = static_cast<float>(units_);
  for (size_t r = 0; r < rows; ++r) {
    float* __restrict d = delta + r * row_;
    const float* __restrict normalized = pass.normalized.data() + r * row_;
    if (by_scale != nullptr)
      for (size_t i = 0; i < units_; ++i) {
        by_scale[i] += d[i] * normalized[i];
        by_shift[i] += d[i];
      }
    for (size_t i = 0; i < units_; ++i) d[i] *= scale[i];
    const float mean = Sum(units_, [d](size_t i) { return d[i]; }) / n;
    const float along = Sum(units_, [d, normalized](size_t i) { return d[i] * normalized[i]; }) / n;
    for (size_t i = 0; i < units_; ++i)
      d[i] = (d[i] - mean - normalized[i] * along) * pass.inverse[r];
  }
}

}  // namespace samara
