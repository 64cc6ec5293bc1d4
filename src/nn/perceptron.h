// SPDX-License-Identifier: Apache-2.0 OR MIT
// Multilayer perceptrons that learn: values and derivatives of many observations at once.
//
// For networks of tens to hundreds of units a tensor library spends most of its time between the
// products; here a pass is nothing but its products.
//
// Parameters are padded (padded_layers.h). Matrices of values have a row for each observation,
// padded likewise.
//
// Bits: every sum is one chain of fused multiply-adds in ascending order, whatever the instruction
// set (layer_norm.h has its own order), so a row of the output depends on that row of the input
// only; with products of bfloat16 (KernelOpsWithBf16) the latter alone holds. Thread safety: a
// Perceptron is constant after construction; a PerceptronPass is its thread's.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "nn/kernel.h"
#include "nn/layer_norm.h"
#include "nn/padded_layers.h"

namespace samara {

// Activations of a forward pass for the backward pass, and its scratch.
struct PerceptronPass {
  size_t rows = 0;
  AlignedFloats input;                // [rows][PaddedRow(inputs)], zeros behind the inputs
  std::vector<AlignedFloats> values;  // of each layer, after its activation
  std::vector<LayerNormPass> norms;   // of each layer; empty where it has none
  AlignedFloats input_delta;          // derivatives by the input, where asked for
  // scratch of the backward pass; transposed: each layer's weights, zeros behind the rows
  std::array<AlignedFloats, 2> delta;
  std::vector<AlignedFloats> transposed;
};

class Perceptron : public PaddedLayers {
 public:
  // `line`: hidden dense layers, by a name or a line (layer_line.h). kConfig: other layers, virtual
  // batch norm, or an activation whose derivative does not follow from its value (silu, gelu).
  static Result<Perceptron> Make(std::string_view line, size_t inputs, size_t outputs,
                                 const kernel::Ops& ops = KernelOps(ActiveIsa()));

  // Makes one of a network of such layers, whose input is a vector.
  static Result<Perceptron> Make(NetworkDescription network,
                                 const kernel::Ops& ops = KernelOps(ActiveIsa()));

  size_t inputs() const { return network().input_size(); }
  size_t outputs() const { return network().output_size(); }

  PerceptronPass MakePass(size_t rows_max) const;
  // Outputs of pass.input, in pass.values.back(), for its first `rows` rows.
  void Forward(std::span<const float> parameters, size_t rows, PerceptronPass& pass) const;
  std::span<const float> Output(const PerceptronPass& pass, size_t row) const {
    return {pass.values.back().data() + row * PaddedRow(outputs()), outputs()};
  }
  // From derivatives of a scalar by the outputs of the last Forward, [rows][outputs], those by the
  // parameters (written to `gradient`, of size(); empty: not wanted) and, where `by_input`, by the
  // inputs, in pass.input_delta. REQUIRES: one of both is wanted.
  void Backward(std::span<const float> parameters, std::span<const float> by_output, bool by_input,
                PerceptronPass& pass, std::span<float> gradient) const;
  // Makes of the last Forward that of these rows of it, so that Backward is of them alone.
  // REQUIRES: some, in ascending order.
  void KeepRows(std::span<const size_t> rows, PerceptronPass& pass) const;

 private:
  Perceptron(NetworkDescription network, const kernel::Ops& ops);

  size_t widest_ = 0;
  const kernel::Ops* ops_;
};

}  // namespace samara
