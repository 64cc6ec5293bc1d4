// SPDX-License-Identifier: Apache-2.0 OR MIT
// Shared by the derivatives of this folder (jacobian.h, perceptron.h) share.
#pragma once

#include <algorithm>
#include <cstddef>

#include "nn/kernel_ops.h"
#include "nn/network.h"

namespace samara {

// Floats with which a row of `n` has room for whole vectors.
inline size_t PaddedRow(size_t n) {
  return (n + kernel::kProductColumns - 1) / kernel::kProductColumns * kernel::kProductColumns;
}

// to[column][row] of from[row][column]; both rows as long as said. What `to` has behind its rows
// stays as it is.
inline void TransposeMatrix(const float* from, size_t rows, size_t columns, size_t from_row,
                            float* to, size_t to_row) {
  constexpr size_t kBlock = 16;
  for (size_t r0 = 0; r0 < rows; r0 += kBlock)
    for (size_t c = 0; c < columns; ++c)
      for (size_t r = r0; r < std::min(rows, r0 + kBlock); ++r)
        to[c * to_row + r] = from[r * from_row + c];
}

// The derivative of the activation, from its argument z and its value a.
inline float ActivationSlope(Activation activation, float z, float a) {
  constexpr float kSeluScale = 1.0507009873554805F, kSeluAlpha = 1.6732632423543772F;
  switch (activation) {
    case Activation::kNone:
      return 1;
    case Activation::kRelu:
      return z > 0 ? 1.0F : 0.0F;
    case Activation::kTanh:
      return 1 - a * a;
    case Activation::kSigmoid:
      return a * (1 - a);
    case Activation::kElu:
      return z > 0 ? 1 : a + 1;
    case Activation::kSelu:
      return z > 0 ? kSeluScale : a + kSeluScale * kSeluAlpha;
    case Activation::kSilu:  // z s, so that a / z is the sigmoid s
      return z == 0 ? 0.5F : a / z + a * (1 - a / z);
    case Activation::kGelu: {  // z s with s = (1 + tanh u) / 2, du/dz = 0.798 (1 + 0.134 z^2)
      if (z == 0) return 0.5F;
      const float s = a / z;
      return s + z * 2 * s * (1 - s) * 0.7978845608F * (1 + 0.134145F * z * z);
    }
    case Activation::kLrelu:
      return z > 0 ? 1 : 0.01F;
    case Activation::kLrelu0p2:
      return z > 0 ? 1 : 0.2F;
  }
  return 1;
}

}  // namespace samara
