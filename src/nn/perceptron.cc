// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/perceptron.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace samara {
namespace {

// Moves rows of `width` floats to the front.
void MoveRows(std::span<const size_t> rows, size_t width, float* matrix) {
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i] != i) std::copy_n(matrix + rows[i] * width, width, matrix + i * width);
}

}  // namespace

Result<Perceptron> Perceptron::Make(std::string_view line, size_t inputs, size_t outputs,
                                    const kernel::Ops& ops) {
  ASSIGN_OR_RETURN(
      NetworkDescription network,
      MakeLearnedNetwork(line, static_cast<int64_t>(inputs), static_cast<int64_t>(outputs)));
  return Make(std::move(network), ops);
}

Result<Perceptron> Perceptron::Make(NetworkDescription network, const kernel::Ops& ops) {
  for (const Layer& layer : network.layers)
    if (layer.kind != Layer::Kind::kDense || !Differentiable(layer))
      return Status(Code::kConfig, "network " + network.name +
                                       ": expected dense layers alone, without virtual batch "
                                       "norm, silu and gelu");
  return Perceptron(std::move(network), ops);
}

Perceptron::Perceptron(NetworkDescription network, const kernel::Ops& ops)
    : PaddedLayers(std::move(network)), ops_(&ops) {
  widest_ = PaddedRow(inputs());
  for (const PaddedLayer& layer : layers()) widest_ = std::max(widest_, layer.row);
}

PerceptronPass Perceptron::MakePass(size_t rows_max) const {
  PerceptronPass pass;
  pass.input = AlignedFloats(rows_max * PaddedRow(inputs()));
  pass.input_delta = AlignedFloats(pass.input.size());
  for (const PaddedLayer& layer : layers()) {
    pass.values.emplace_back(rows_max * layer.row);
    pass.norms.push_back(layer.layer_norm ? LayerNorm(layer.outputs, layer.row).MakePass(rows_max)
                                          : LayerNormPass());
    pass.transposed.emplace_back(layer.outputs * PaddedRow(layer.inputs));
  }
  for (AlignedFloats& delta : pass.delta) delta = AlignedFloats(rows_max * widest_);
  return pass;
}

void Perceptron::Forward(std::span<const float> parameters, size_t rows,
                         PerceptronPass& pass) const {
  CHECK_EQ(parameters.size(), size());
  CHECK(rows > 0 && rows * PaddedRow(inputs()) <= pass.input.size());
  const kernel::Ops& ops = *ops_;
  pass.rows = rows;
  const float* in = pass.input.data();
  size_t in_row = PaddedRow(inputs());
  for (size_t s = 0; s < layers().size(); ++s) {
    const PaddedLayer& layer = layers()[s];
    float* out = pass.values[s].data();
    Sums(ops, layer, parameters, in, in_row, rows, out);
    if (layer.layer_norm)
      LayerNorm(layer.outputs, layer.row)
          .Forward(parameters.data() + layer.scale(), parameters.data() + layer.shift(), rows, out,
                   pass.norms[s]);
    Activate(ops, layer, rows, out);
    in = out, in_row = layer.row;
  }
}

void Perceptron::Backward(std::span<const float> parameters, std::span<const float> by_output,
                          bool by_input, PerceptronPass& pass, std::span<float> gradient) const {
  const size_t rows = pass.rows;
  CHECK_EQ(by_output.size(), rows * outputs());
  CHECK(by_input || !gradient.empty());
  const kernel::Ops& ops = *ops_;
  float* delta = pass.delta[0].data();
  float* next = pass.delta[1].data();
  const size_t out_row = layers().back().row;
  for (size_t row = 0; row < rows; ++row) {
    std::copy_n(by_output.data() + row * outputs(), outputs(), delta + row * out_row);
    std::fill_n(delta + row * out_row + outputs(), out_row - outputs(), 0.0F);
  }
  for (size_t s = layers().size(); s-- > 0;) {
    const PaddedLayer& layer = layers()[s];
    MultiplyBySlope(layer.activation, pass.values[s].data(), delta, rows * layer.row);
    if (layer.layer_norm) {
      const bool wanted = !gradient.empty();
      LayerNorm(layer.outputs, layer.row)
          .Backward(parameters.data() + layer.scale(), rows, pass.norms[s], delta,
                    wanted ? gradient.data() + layer.scale() : nullptr,
                    wanted ? gradient.data() + layer.shift() : nullptr);
    }
    const float* in = s > 0 ? pass.values[s - 1].data() : pass.input.data();
    const size_t in_row = s > 0 ? layers()[s - 1].row : PaddedRow(inputs());
    if (!gradient.empty())
      WeightGradient(ops, layer, in, in_row, delta, rows, /*add=*/false, gradient);
    if (s == 0 && !by_input) break;
    TransposeMatrix(parameters.data() + layer.weights, layer.inputs, layer.outputs, layer.row,
                    pass.transposed[s].data(), in_row);
    float* to = s > 0 ? next : pass.input_delta.data();
    InputDelta(ops, layer, delta, rows, pass.transposed[s].data(), to);
    std::swap(delta, next);
  }
}

void Perceptron::KeepRows(std::span<const size_t> rows, PerceptronPass& pass) const {
  CHECK(!rows.empty() && rows.back() < pass.rows);
  pass.rows = rows.size();
  MoveRows(rows, PaddedRow(inputs()), pass.input.data());
  for (size_t s = 0; s < layers().size(); ++s) {
    const PaddedLayer& layer = layers()[s];
    MoveRows(rows, layer.row, pass.values[s].data());
    if (!layer.layer_norm) continue;
    MoveRows(rows, layer.row, pass.norms[s].normalized.data());
    MoveRows(rows, 1, pass.norms[s].inverse.data());
  }
}

}  // namespace samara
