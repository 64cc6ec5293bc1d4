// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/perceptron.h"

#include <algorithm>

#include "core/check.h"
#include "nn/kernel_choice.h"
#include "nn/matrix.h"

namespace samara {
namespace {

// delta *= the derivative of the activation that gave `value`.
void MultiplyBySlope(Activation activation, const float* __restrict value, float* __restrict delta,
                     size_t n) {
  switch (activation) {
    case Activation::kNone:
      return;
    case Activation::kRelu:
      for (size_t i = 0; i < n; ++i) delta[i] = value[i] > 0 ? delta[i] : 0.0F;
      return;
    case Activation::kTanh:
      for (size_t i = 0; i < n; ++i) delta[i] *= 1 - value[i] * value[i];
      return;
    default:  // a value has its argument's sign
      for (size_t i = 0; i < n; ++i) delta[i] *= ActivationSlope(activation, value[i], value[i]);
  }
}

}  // namespace

Result<Perceptron> Perceptron::Make(std::string_view line, size_t inputs, size_t outputs,
                                    IsaLevel isa) {
  ASSIGN_OR_RETURN(NetworkDescription network, MakeNetwork(line, 1, 1, static_cast<int64_t>(inputs),
                                                           static_cast<int64_t>(outputs)));
  return Make(std::move(network), isa);
}

Result<Perceptron> Perceptron::Make(NetworkDescription network, IsaLevel isa) {
  for (const Layer& layer : network.layers)
    if (layer.kind != Layer::Kind::kDense || layer.norm != Norm::kNone ||
        layer.activation == Activation::kSilu || layer.activation == Activation::kGelu)
      return Status(Code::kConfig, "network " + network.name +
                                       ": expected dense layers alone, without normalization, "
                                       "silu and gelu");
  return Perceptron(std::move(network), isa);
}

Perceptron::Perceptron(NetworkDescription network, IsaLevel isa)
    : network_(std::move(network)), isa_(isa) {
  for (const Layer& layer : network_.layers) {
    const auto in = static_cast<size_t>(layer.in), out = static_cast<size_t>(layer.out);
    const size_t row = PaddedRow(out);
    layers_.push_back({in, out, row, size_, size_ + in * row, layer.activation});
    size_ += (in + 1) * row;
    widest_ = std::max(widest_, row);
  }
  widest_ = std::max(widest_, PaddedRow(inputs()));
}

PerceptronPass Perceptron::MakePass(size_t rows_max) const {
  PerceptronPass pass;
  pass.input = AlignedFloats(rows_max * PaddedRow(inputs()));
  pass.input_delta = AlignedFloats(pass.input.size());
  for (const DenseLayer& layer : layers_) {
    pass.values.emplace_back(rows_max * layer.row);
    pass.transposed.emplace_back(layer.outputs * PaddedRow(layer.inputs));
  }
  for (AlignedFloats& delta : pass.delta) delta = AlignedFloats(rows_max * widest_);
  return pass;
}

void Perceptron::Forward(std::span<const float> parameters, size_t rows,
                         PerceptronPass& pass) const {
  CHECK_EQ(parameters.size(), size_);
  CHECK(rows > 0 && rows * PaddedRow(inputs()) <= pass.input.size());
  const kernel::Ops& ops = KernelOps(isa_);
  pass.rows = rows;
  const float* in = pass.input.data();
  size_t in_row = PaddedRow(inputs());
  for (size_t s = 0; s < layers_.size(); ++s) {
    const DenseLayer& layer = layers_[s];
    float* out = pass.values[s].data();
    ops.product({.left = in,
                 .left_row = in_row,
                 .left_link = 1,
                 .right = parameters.data() + layer.weights,
                 .right_row = layer.row,
                 .out = out,
                 .out_row = layer.row,
                 .rows = rows,
                 .links = layer.inputs,
                 .columns = layer.row,
                 .add = false,
                 .bias = parameters.data() + layer.bias});
    if (layer.activation != Activation::kNone)
      ops.activate(out, rows * layer.row, KernelActivation(layer.activation));
    in = out, in_row = layer.row;
  }
}

void Perceptron::Backward(std::span<const float> parameters, std::span<const float> by_output,
                          bool by_input, PerceptronPass& pass, std::span<float> gradient) const {
  const size_t rows = pass.rows;
  CHECK_EQ(by_output.size(), rows * outputs());
  CHECK(by_input || !gradient.empty());
  const kernel::Ops& ops = KernelOps(isa_);
  float* delta = pass.delta[0].data();
  float* next = pass.delta[1].data();
  const size_t out_row = layers_.back().row;
  for (size_t row = 0; row < rows; ++row) {
    std::copy_n(by_output.data() + row * outputs(), outputs(), delta + row * out_row);
    std::fill_n(delta + row * out_row + outputs(), out_row - outputs(), 0.0F);
  }
  for (size_t s = layers_.size(); s-- > 0;) {
    const DenseLayer& layer = layers_[s];
    MultiplyBySlope(layer.activation, pass.values[s].data(), delta, rows * layer.row);
    const float* in = s > 0 ? pass.values[s - 1].data() : pass.input.data();
    const size_t in_row = s > 0 ? layers_[s - 1].row : PaddedRow(inputs());
    if (!gradient.empty()) {
      ops.product({.left = in,
                   .left_row = 1,
                   .left_link = in_row,
                   .right = delta,
                   .right_row = layer.row,
                   .out = gradient.data() + layer.weights,
                   .out_row = layer.row,
                   .rows = layer.inputs,
                   .links = rows,
                   .columns = layer.row,
                   .add = false});
      float* bias = gradient.data() + layer.bias;
      std::fill_n(bias, layer.row, 0.0F);
      for (size_t row = 0; row < rows; ++row)
        for (size_t o = 0; o < layer.row; ++o) bias[o] += delta[row * layer.row + o];
    }
    if (s == 0 && !by_input) break;
    TransposeMatrix(parameters.data() + layer.weights, layer.inputs, layer.outputs, layer.row,
                    pass.transposed[s].data(), in_row);
    float* to = s > 0 ? next : pass.input_delta.data();
    ops.product({.left = delta,
                 .left_row = layer.row,
                 .left_link = 1,
                 .right = pass.transposed[s].data(),
                 .right_row = in_row,
                 .out = to,
                 .out_row = in_row,
                 .rows = rows,
                 .links = layer.outputs,
                 .columns = in_row,
                 .add = false});
    std::swap(delta, next);
  }
}

std::vector<float> Perceptron::Canonical(std::span<const float> parameters) const {
  CHECK_EQ(parameters.size(), size_);
  std::vector<float> canonical;
  for (const DenseLayer& layer : layers_)
    for (size_t i = 0; i <= layer.inputs; ++i) {
      const float* row = parameters.data() + layer.weights + i * layer.row;
      canonical.insert(canonical.end(), row, row + layer.outputs);
    }
  return canonical;
}

void Perceptron::FromCanonical(std::span<const float> canonical,
                               std::span<float> parameters) const {
  CHECK_EQ(canonical.size(), network_.parameter_count);
  CHECK_EQ(parameters.size(), size_);
  std::ranges::fill(parameters, 0.0F);
  const float* from = canonical.data();
  for (const DenseLayer& layer : layers_)
    for (size_t i = 0; i <= layer.inputs; ++i, from += layer.outputs)
      std::copy_n(from, layer.outputs, parameters.data() + layer.weights + i * layer.row);
}

}  // namespace samara
