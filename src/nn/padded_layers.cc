// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/padded_layers.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace samara {

PaddedLayers::PaddedLayers(NetworkDescription network) : network_(std::move(network)) {
  for (const Layer& layer : network_.layers) {
    const auto in = static_cast<size_t>(layer.fan_in()), out = static_cast<size_t>(layer.out);
    const size_t row = PaddedRow(out);
    layers_.push_back({in, out, row, size_, size_ + in * row, layer.activation});
    size_ += (in + 1) * row;
  }
}

std::vector<float> PaddedLayers::Canonical(std::span<const float> parameters) const {
  CHECK_EQ(parameters.size(), size_);
  std::vector<float> canonical;
  for (const PaddedLayer& layer : layers_)
    for (size_t i = 0; i <= layer.inputs; ++i) {
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
    for (size_t i = 0; i <= layer.inputs; ++i, from += layer.outputs)
      std::copy_n(from, layer.outputs, parameters.data() + layer.weights + i * layer.row);
}

bool Differentiable(const Layer& layer) {
  return layer.norm == Norm::kNone && layer.activation != Activation::kSilu &&
         layer.activation != Activation::kGelu;
}

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

}  // namespace samara
