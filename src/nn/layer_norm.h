// SPDX-License-Identifier: Apache-2.0 OR MIT
// Layer normalization of a matrix's rows, and its derivatives (Norm::kLayer, network.h).
//
// Bits: a sum over the units of a row is sixteen chains, each in ascending order, which are added
// in theirs; sums over rows are one chain in ascending order.
#pragma once

#include <cstddef>
#include <vector>

#include "nn/kernel.h"

namespace samara {

// Keeps of a forward pass what the backward pass needs.
struct LayerNormPass {
  AlignedFloats normalized;    // [rows][row]: (x - mean) / deviation, zeros behind the units
  std::vector<float> inverse;  // [rows]: 1 / deviation
};

class LayerNorm {
 public:
  // Rows of `units` numbers, `row` floats apart.
  LayerNorm(size_t units, size_t row) : units_(units), row_(row) {}

  LayerNormPass MakePass(size_t rows_max) const;
  // Replaces sums, [rows][row], by normalized ones times `scale` and `shift`, [units].
  void Forward(const float* scale, const float* shift, size_t rows, float* sums,
               LayerNormPass& pass) const;
  // Replaces derivatives by the outputs of the last Forward, [rows][row], by those by the sums.
  // Writes those by scale and shift, [row], unless they are null.
  void Backward(const float* scale, size_t rows, const LayerNormPass& pass, float* delta,
                float* by_scale, float* by_shift) const;

 private:
  const size_t units_, row_;
};

}  // namespace samara
