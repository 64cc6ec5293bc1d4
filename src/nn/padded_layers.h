// SPDX-License-Identifier: Apache-2.0 OR MIT
// Parameters of networks that learn by derivatives written by hand (perceptron.h, convolutions.h).
//
// They are those of a network's layers in canonical order (network.h), but each row of a matrix,
// each bias, scale and shift has room for whole vectors, with zeros behind it: so they are held,
// learn and are copied. Canonical() and FromCanonical() convert. Thread safety: constant after
// construction.
#pragma once

#include <span>
#include <vector>

#include "nn/kernel_choice.h"
#include "nn/kernel_ops.h"
#include "nn/matrix.h"
#include "nn/network.h"

namespace samara {

class PaddedLayers {
 public:
  const NetworkDescription& network() const { return network_; }
  size_t size() const { return size_; }  // floats of the parameters

  std::vector<float> Canonical(std::span<const float> parameters) const;
  void FromCanonical(std::span<const float> canonical, std::span<float> parameters) const;

 protected:
  // REQUIRES: convolutions and dense layers alone, Differentiable each.
  explicit PaddedLayers(NetworkDescription network);

  struct PaddedLayer {
    size_t inputs, outputs, row;  // of the matrix; row: of the outputs
    size_t weights, bias;         // offsets
    Activation activation;
    bool layer_norm;
    size_t scale() const { return bias + row; }  // with layer_norm
    size_t shift() const { return bias + 2 * row; }
    size_t rows() const { return inputs + (layer_norm ? 3 : 1); }  // of weights, bias, ...
  };
  const std::vector<PaddedLayer>& layers() const { return layers_; }

  // Products of a layer and a matrix of `rows` rows of its inputs, each `in_row` floats long.
  // Writes the sums, [rows][layer.row].
  static void Sums(const kernel::Ops& ops, const PaddedLayer& layer,
                   std::span<const float> parameters, const float* in, size_t in_row, size_t rows,
                   float* out);
  // Replaces such sums by their activations.
  static void Activate(const kernel::Ops& ops, const PaddedLayer& layer, size_t rows, float* sums);
  // Writes the derivatives by the weights and the bias, or where `add` adds them to what is there.
  // `delta`: by the sums of the layer, [rows][layer.row].
  static void WeightGradient(const kernel::Ops& ops, const PaddedLayer& layer, const float* in,
                             size_t in_row, const float* delta, size_t rows, bool add,
                             std::span<float> gradient);
  // Writes the derivatives by the inputs, [rows][PaddedRow(layer.inputs)]. `transposed`: the
  // layer's weights, [outputs][PaddedRow(layer.inputs)].
  static void InputDelta(const kernel::Ops& ops, const PaddedLayer& layer, const float* delta,
                         size_t rows, const float* transposed, float* to);

 private:
  NetworkDescription network_;
  std::vector<PaddedLayer> layers_;
  size_t size_ = 0;
};

// Whether a layer has no normalization but kLayer, and the derivative of its activation follows
// from its value (not that of silu and gelu).
bool Differentiable(const Layer& layer);
// delta *= the derivative of the activation that gave `value`.
void MultiplyBySlope(Activation activation, const float* __restrict value, float* __restrict delta,
                     size_t n);

}  // namespace samara
