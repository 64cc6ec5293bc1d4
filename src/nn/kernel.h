// SPDX-License-Identifier: Apache-2.0 OR MIT
// Population kernel: evaluates many *different* parameter vectors, on one observation each or on
// several.
//
// Bits: every output is one chain of fused multiply-adds that starts at the bias
// and runs over the inputs in canonical order (convolution: ky, kx, in; dense: in), vectorised
// across outputs only. A zero adds nothing to a chain of finite numbers, so that it may be skipped
// or multiplied: parameters must be finite. A recurrent layer
// has two such chains a gate, over its input and over its state, which are added. The weights of a
// layer with virtual batch norm are w * s with s = scale / sqrt(variance + epsilon), rounded to
// float32, and its bias is what follows (network.h). So the result of a row depends neither on the
// batch, the thread, nor the instruction set. Thread safety: const
// after construction; each thread owns a Workspace.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/cpu.h"
#include "nn/network.h"

namespace samara {

// 64-byte aligned float buffer, zero at first; huge pages where the system offers them.
class AlignedFloats {
 public:
  AlignedFloats() = default;
  explicit AlignedFloats(size_t n);
  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  size_t size() const { return size_; }
  std::span<float> span() { return {data_.get(), size_}; }
  std::span<const float> span() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(float* p) const;
  };
  std::unique_ptr<float, Free> data_;
  size_t size_ = 0;
};

class PopulationKernel {
 public:
  class Workspace;                          // scratch of one thread
  static constexpr size_t kSideBySide = 4;  // networks that ForwardSmall evaluates at a time
  explicit PopulationKernel(NetworkDescription network, IsaLevel isa = ActiveIsa());
  ~PopulationKernel();
  PopulationKernel(const PopulationKernel&) = delete;
  PopulationKernel& operator=(const PopulationKernel&) = delete;

  const NetworkDescription& network() const { return network_; }
  std::unique_ptr<Workspace> MakeWorkspace() const;
  // Floats of one packed parameter vector (alignment 64 bytes is the caller's: use AlignedFloats).
  size_t packed_size() const;
  // canonical[parameter_count] -> packed[packed_size()].
  void Pack(std::span<const float> canonical, std::span<float> packed) const;
  // Writes into `canonical` the statistics of its layers: mean and variance (of the population, not
  // of a sample), or deviation, of each channel over the pixels of all `reference` inputs, summed
  // in float64 in their order, layer after layer. Nothing else is read or written, so they
  // are a function of the parameters and the reference.
  void ComputeStatistics(std::span<const float* const> reference, Workspace& workspace,
                         std::span<float> canonical) const;
  // Floats of the state of recurrent layers, which belongs to one episode: zeros at its start, then
  // what the evaluation of each observation leaves. 0 without such layers.
  size_t state_size() const;
  // packed, input[input_size()], state[state_size()] -> output[output_size()], state. Unchecked
  // core: sizes were validated by the caller.
  void Forward(const float* packed, const float* input, Workspace& workspace, float* output,
               float* state = nullptr) const;
  // Several observations of one network: inputs[i], states[i] -> outputs[i * output_size()],
  // states[i], the same bits as Forward of each. The weights of a dense or recurrent layer are read
  // once for up to 16 of them. REQUIRES: as many states, all different, where state_size() > 0.
  void ForwardMany(const float* packed, std::span<const float* const> inputs, Workspace& workspace,
                   float* outputs, std::span<float* const> states = {}) const;
  // Whether the network is a few small dense layers: then evaluations of several networks run side
  // by side on one core in ForwardSmall.
  bool small() const;
  // Up to kSideBySide networks on one observation each, the same bits as Forward of each. REQUIRES:
  // small().
  void ForwardSmall(std::span<const float* const> packed, std::span<const float* const> inputs,
                    Workspace& workspace, std::span<float* const> outputs) const;

 private:
  struct Plan;
  enum class Fold { kStatistics, kRaw };  // whether a Norm is part of the packed weights
  void PackLayer(size_t index, std::span<const float> canonical, Fold fold,
                 std::span<float> packed) const;
  // Scales the packed weights of a layer with a Norm, and completes its bias.
  void FoldNorm(size_t index, std::span<const float> canonical, std::span<float> packed) const;
  // The layer's input, inside its border.
  void TakeInput(size_t index, const float* input, Workspace& workspace) const;
  // Runs a layer with packed parameters on inputs one after the other, without its activation if it
  // is `raw`.
  void RunReference(size_t index, std::span<const float* const> inputs, bool raw,
                    Workspace& workspace, float* outputs) const;
  void RunLayer(size_t index, const float* packed, Activation activation, Workspace& workspace,
                float* state) const;
  void RunLayer(size_t index, const float* packed, Workspace& workspace, float* state) const {
    RunLayer(index, packed, network_.layers[index].activation, workspace, state);
  }
  size_t RunRecurrent(size_t index, const float* packed, Workspace& workspace, float* state) const;
  // The step from gates to state; returns the layer's output, inside `state`.
  const float* RunCell(size_t index, const float* input, const float* recurrent,
                       float* state) const;
  void ForwardBatch(const float* packed, std::span<const float* const> inputs, Workspace& workspace,
                    float* outputs, std::span<float* const> states) const;
  NetworkDescription network_;
  std::unique_ptr<Plan> plan_;
};

class PopulationKernel::Workspace {
 public:
  explicit Workspace(const Plan& plan);

  // For benchmarks: what the evaluations since MeasureLayers cost, layer by layer. They run the
  // last small layers one by one too, which is slower than all in one call.
  struct LayerCost {
    double seconds = 0;
    uint64_t weight_bytes =
        0;  // of rows that met a nonzero input; a convolution's weights count once
  };
  void MeasureLayers() { costs_.assign(layers_, {}); }
  std::span<const LayerCost> layer_costs() const { return costs_; }

 private:
  friend class PopulationKernel;
  size_t layers_;
  std::vector<LayerCost> costs_;           // empty: not measured
  AlignedFloats activations_;              // maps of all layers, each with its border of zeros
  AlignedFloats gates_, recurrent_gates_;  // sums of one observation
  // of ComputeStatistics, allocated by its first use: packed parameters, outputs of two layers
  AlignedFloats reference_packed_, reference_[2];
  std::vector<double> sums_;
  // of ForwardMany, allocated by its first use
  AlignedFloats many_in_, many_out_, many_recurrent_;
  std::vector<uint64_t> bits_, masks_;
  std::vector<uint32_t> rows_;
  std::vector<float> values_;
};

}  // namespace samara
