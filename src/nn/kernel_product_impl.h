// SPDX-License-Identifier: Apache-2.0 OR MIT
// Matrix products of several observations of one network, for Jacobians (jacobian.h). Included by
// kernel_impl.h, once per instruction set.
#pragma once

namespace samara::kernel {
namespace {

// Elements of kProductRows rows and kVectors vectors of columns. A tile that reaches beyond the
// last row computes that row again.
template <size_t kVectors>
void ProductTile(const ProductTask& t, size_t row, size_t column) {
  const float* left[kProductRows];
  float* out[kProductRows];
  SAMARA_UNROLL
  for (size_t i = 0; i < kProductRows; ++i) {
    const size_t m = row + i < t.rows ? row + i : t.rows - 1;
    left[i] = t.left + m * t.left_row;
    out[i] = t.out + m * t.out_row + column;
  }
  Vec sum[kProductRows][kVectors];
  SAMARA_UNROLL
  for (size_t i = 0; i < kProductRows; ++i) {
    SAMARA_UNROLL
    for (size_t v = 0; v < kVectors; ++v)
      sum[i][v] = t.add    ? Load(out[i] + v * kLanes)
                  : t.bias ? Load(t.bias + column + v * kLanes)
                           : Broadcast(0.0f);
  }
  const float* right = t.right + column;
  for (size_t link = 0; link < t.links; ++link, right += t.right_row) {
    Vec r[kVectors];
    SAMARA_UNROLL
    for (size_t v = 0; v < kVectors; ++v) r[v] = Load(right + v * kLanes);
    SAMARA_UNROLL
    for (size_t i = 0; i < kProductRows; ++i) {
      const Vec l = Broadcast(left[i][link * t.left_link]);
      SAMARA_UNROLL
      for (size_t v = 0; v < kVectors; ++v) sum[i][v] = Fma(l, r[v], sum[i][v]);
    }
  }
  SAMARA_UNROLL
  for (size_t i = 0; i < kProductRows; ++i) {
    SAMARA_UNROLL
    for (size_t v = 0; v < kVectors; ++v) Store(out[i] + v * kLanes, sum[i][v]);
  }
}

void Product(const ProductTask& t) {
  size_t column = 0;
  for (; column + kTileVectors * kLanes <= t.columns; column += kTileVectors * kLanes) {
    for (size_t row = 0; row < t.rows; row += kProductRows)
      ProductTile<kTileVectors>(t, row, column);
  }
  for (; column < t.columns; column += kLanes) {
    for (size_t row = 0; row < t.rows; row += kProductRows) ProductTile<1>(t, row, column);
  }
}

void ActivateAll(float* x, size_t n, Act activation) {
  for (size_t i = 0; i < n; i += kLanes) Store(x + i, Activate(Load(x + i), activation));
}

}  // namespace
}  // namespace samara::kernel
