// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/padded_layers.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "nn/kernel_choice.h"

namespace samara {

PaddedLayers::PaddedLayers(NetworkDescription network) : network_(std::move(network)) {
  for (const Layer& layer : network_.layers) {
    const auto in = static_cast<size_t>(layer.fan_in()), out = static_cast<size_t>(layer.out);
    const size_t row = PaddedRow(out);
    layers_.push_back(
        {in, out, row, size_, size_ + in * row, layer.activation, layer.norm == Norm::kLayer});
    size_ += layers_.back().rows() * row;
  }
}

std::vector<float> PaddedLayers::Canonical(std::span<const float> parameters) const {
  CHECK_EQ(parameters.size(), size_);
  std::vector<float> canonical;
  for (const PaddedLayer& layer : layers_)
    for (size_t i = 0; i < layer.rows(); ++i) {
      const float* row = parameters.data() + layer.weights + i * layer.row;
      canonical.insert(canonical.end(), row, row + layer.outputs);
    }
  return canonical;
}

void PaddedLayers::FromCanonical(std::span<const float> canonical,
                                 std::span<float> parameters) const {
  CHECK_EQ(canonical.size(), network_.parameter_count);
  CHECK_EQ(parameters.size(), size_);
  std::ranges::fill(parameters, 0.0F);
  const float* from = canonical.data();
  for (const PaddedLayer& layer : layers_)
    for (size_t i = 0; i < layer.rows(); ++i, from += layer.outputs)
      std::copy_n(from, layer.outputs, parameters.data() + layer.weights + i * layer.row);
}

void PaddedLayers::Sums(const kernel::Ops& ops, const PaddedLayer& layer,
                        std::span<const float> parameters, const float* in, size_t in_row,
                        size_t rows, float* out) {
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
}

void PaddedLayers::Activate(const kernel::Ops& ops, const PaddedLayer& layer, size_t rows,
                            float* sums) {
  if (layer.activation != Activation::kNone)
    ops.activate(sums, rows * layer.row, KernelActivation(layer.activation));
}

void PaddedLayers::WeightGradient(const kernel::Ops& ops, const PaddedLayer& layer, const float* in,
                                  size_t in_row, const float* delta, size_t rows, bool add,
                                  std::span<float> gradient) {
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
               .add = add});
  float* bias = gradient.data() + layer.bias;
  if (!add) std::fill_n(bias, layer.row, 0.0F);
  for (size_t row = 0; row < rows; ++row)
    for (size_t o = 0; o < layer.row; ++o) bias[o] += delta[row * layer.row + o];
}

void PaddedLayers::InputDelta(const kernel::Ops& ops, const PaddedLayer& layer, const float* delta,
                              size_t rows, const float* transposed, float* to) {
  const size_t in_row = PaddedRow(layer.inputs);
  ops.product({.left = delta,
               .left_row = layer.row,
               .left_link = 1,
               .right = transposed,
               .right_row = in_row,
               .out = to,
               .out_row = in_row,
               .rows = rows,
               .links = layer.outputs,
               .columns = in_row,
               .add = false});
}

bool Differentiable(const Layer& layer) {
  return !layer.virtual_batch_norm() && layer.activation != Activation::kSilu &&
         layer.activation != Activation::kGelu;
}

namespace {

// A value has its argument's sign.
template <Activation kActivation>
void MultiplyBy(const float* __restrict value, float* __restrict delta, size_t n) {
  for (size_t i = 0; i < n; ++i) delta[i] *= ActivationSlope(kActivation, value[i], value[i]);
}

}  // namespace

void MultiplyBySlope(Activation activation, const float* __restrict value, float* __restrict delta,
                     size_t n) {
  switch (activation) {
    case Activation::kNone:
      return;
    case Activation::kRelu:
      for (size_t i = 0; i < n; ++i) delta[i] = value[i] > 0 ? delta[i] : 0.0F;
      return;
    case Activation::kTanh:
      return MultiplyBy<Activation::kTanh>(value, delta, n);
    case Activation::kSigmoid:
      return MultiplyBy<Activation::kSigmoid>(value, delta, n);
    case Activation::kElu:
      return MultiplyBy<Activation::kElu>(value, delta, n);
    case Activation::kSelu:
      return MultiplyBy<Activation::kSelu>(value, delta, n);
    case Activation::kLrelu:
      return MultiplyBy<Activation::kLrelu>(value, delta, n);
    case Activation::kLrelu0p2:
      return MultiplyBy<Activation::kLrelu0p2>(value, delta, n);
    case Activation::kSilu:
    case Activation::kGelu:
      CHECK(false) << "a layer that is not Differentiable";
  }
}

}  // namespace samara
