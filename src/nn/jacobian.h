// SPDX-License-Identifier: Apache-2.0 OR MIT
// Derivatives of a network's outputs by its parameters, on many states of one network at once.
//
// A loop of one backward pass per state and output reads every weight as often; here dense and
// recurrent layers are products of matrices over all states. The sum of absolute values of the
// states' Jacobians, which a batched backward pass does not give, is for a dense layer the product
// of absolute values: a weight meets each state once, so |a d| = |a| |d|. A convolution's weight
// meets a state at every pixel, and a recurrent network's a sequence at every step; their terms are
// summed state by state, sequence by sequence.
//
// Bits: every sum is one chain of float32 operations in an order fixed by the network and the
// states, whatever the instruction set. The outputs are PopulationKernel's. Derivatives are by the
// weights as they are stored (network.h), as though they were float32. A relu has derivative 0 at
// 0. Thread safety: const after construction.
#pragma once

#include <span>
#include <vector>

#include "core/cpu.h"
#include "nn/kernel.h"
#include "nn/network.h"

namespace samara {

class Jacobians {
 public:
  // `inputs`: one network input after the other. Of a recurrent network they are sequences: a state
  // with a 1 in `begins` is the first of one, before which its memory is 0; the others follow the
  // state before them. Derivatives go back to the beginning of the sequence. REQUIRES: at least one
  // state; a recurrent network has as many `begins`, of which the first is 1.
  Jacobians(const NetworkDescription& network, std::span<const float> parameters,
            std::span<const float> inputs, std::span<const uint8_t> begins = {},
            IsaLevel isa = ActiveIsa());
  ~Jacobians();
  Jacobians(const Jacobians&) = delete;
  Jacobians& operator=(const Jacobians&) = delete;

  size_t states() const { return states_; }
  // [state][output]
  std::span<const float> outputs() const { return outputs_; }

  // With J_x the derivatives of the outputs at state x by the parameters, [output][parameter]:
  // out[parameter] = sum over states x of J_x[k]
  void Sum(size_t k, std::span<float> out) const;
  // ... of |J_x[k]|, element by element
  void SumAbs(size_t k, std::span<float> out) const;
  // J_x v at every state, [state][output]: one pass in forward mode.
  std::vector<float> Times(std::span<const float> v) const;
  // out[parameter] = sum over x of J_x^T u_x; u: [state][output]. One backward pass.
  void TransposedTimes(std::span<const float> u, std::span<float> out) const;

 private:
  struct LayerValues;
  // Terms that a backward pass adds to `out`: signed terms of all states, their magnitudes where
  // every state has one term, or the magnitude of the sum over each sequence.
  enum class Terms { kSigned, kMagnitudes, kSequences };
  using Floats = AlignedFloats;

  size_t Column(size_t state) const { return columns_.empty() ? state : columns_[state]; }
  void ArrangeSequences(std::span<const uint8_t> begins);
  void Evaluate(std::span<const float> inputs);
  void Reverse(std::span<const float> u, Terms terms, std::span<float> out) const;
  void EvaluateConv(size_t i, Floats& columns, Floats& value);
  void EvaluateDense(size_t i, Floats& value);
  void EvaluateRecurrent(size_t i, Floats& value);
  void EvaluateDiagonal(size_t i, Floats& value);
  Floats TangentOfConv(size_t i, std::span<const float> v, const Floats& tangent) const;
  Floats TangentOfDense(size_t i, std::span<const float> v, const Floats& tangent) const;
  Floats TangentOfRecurrent(size_t i, std::span<const float> v, const Floats& tangent) const;
  Floats TangentOfDiagonal(size_t i, std::span<const float> v, const Floats& tangent) const;
  void ReverseConv(size_t i, Terms terms, Floats& delta, std::span<float> out) const;
  void ReverseDense(size_t i, Terms terms, Floats& delta, std::span<float> out) const;
  void ReverseRecurrent(size_t i, Terms terms, Floats& delta, std::span<float> out) const;
  void ReverseDiagonal(size_t i, Terms terms, Floats& delta, std::span<float> out) const;
  // Adds the derivatives by the weights [in][units] between `in` and `delta`, and by the bias.
  void AddGradient(Terms terms, const float* in, size_t inputs, const Floats& delta, size_t units,
                   std::span<float> weights, std::span<float> bias) const;
  const float* weights(const Layer& layer) const {
    return parameters_.data() + layer.weight_offset;
  }

  const NetworkDescription network_;
  std::vector<float> parameters_;
  const IsaLevel isa_;
  const size_t states_;
  // Matrices have a column for each state. A recurrent network's are ordered by the position in
  // the sequence, then by sequence: times_ blocks of stride_ columns.
  size_t stride_, times_ = 1, row_;
  std::vector<size_t> columns_;  // of states; empty: the state's number
  std::vector<size_t> lengths_;  // of sequences
  std::vector<LayerValues> layer_values_;
  std::vector<float> outputs_;
};

// The outputs alone, [state][output], by the same chains.
std::vector<float> Outputs(const NetworkDescription& network, std::span<const float> parameters,
                           std::span<const float> inputs, std::span<const uint8_t> begins = {},
                           IsaLevel isa = ActiveIsa());

}  // namespace samara
