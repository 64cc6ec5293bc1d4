// Convolutions that all networks of an algorithm with a replay share, where observations are
// images: its perceptrons read their features, vectors of floats. The loss of the values trains
// them, that of a policy does not (as in Acme's agents); a target's networks have their own.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "nn/convolutions.h"
#include "rl/learner/agent.h"
#include "rl/learner/input_layout.h"
#include "rl/learner/parameter_blocks.h"

namespace samara {

// Thread safety: constant; a Memory is its thread's.
class ImageTorso {
 public:
  // Splits the layers of setup.config.network: returns the convolutions and leaves the dense layers
  // in `setup`, whose observations become the features. Null, and nothing has changed, where
  // observations are no images. kConfig: no convolution, other layers, or a stack that is too deep.
  static Result<std::unique_ptr<const ImageTorso>> Split(AgentSetup& setup);

  const InputLayout& layout() const { return layout_; }
  const ParameterBlocks& blocks() const { return blocks_; }  // one, of size() floats
  size_t size() const { return net_->size(); }
  size_t features() const { return net_->outputs(); }

  struct Memory {
    ConvolutionPass pass;
    std::vector<std::byte> input;        // of one row
    std::vector<float> still;            // its numbers before they are moved
    std::vector<float> mean, deviation;  // of each of them, where inputs are normalized
  };
  // `backward`: Backward may follow.
  Memory MakeMemory(size_t rows_max, bool backward) const;
  // Sets the inputs of rows; write(row, input) writes one (InputLayout::WriteInput) and returns how
  // far it is moved. `statistics`, of a frame as ObservationNormalizer has them: inputs are
  // normalized before they are moved; empty: they are not.
  template <typename Write>
  void SetInputs(size_t rows, std::span<const float> statistics, const Write& write,
                 Memory& memory) const {
    SetStatistics(statistics, memory);
    for (size_t i = 0; i < rows; ++i) SetInput(i, write(i, memory.input.data()), memory);
  }
  // Writes the features of the first `rows` inputs, [rows][features()].
  void Evaluate(std::span<const float> parameters, size_t rows, Memory& memory,
                std::span<float> features) const;
  // A row of features as an algorithm has observations.
  std::span<const std::byte> Observation(std::span<const float> features, size_t row) const {
    return std::as_bytes(features.subspan(row * this->features(), this->features()));
  }
  // Computes derivatives by the parameters from those by the features of the last Evaluate.
  void Backward(std::span<const float> parameters, std::span<const float> by_features,
                Memory& memory, std::span<float> gradient) const {
    net_->Backward(parameters, by_features, memory.pass, gradient);
  }

 private:
  ImageTorso(const InputLayout& layout, Convolutions net);
  void SetStatistics(std::span<const float> statistics, Memory& memory) const;
  // Row `i` of the pass, from memory.input: bytes become value / 255.
  void SetInput(size_t i, ImageShift shift, Memory& memory) const;

  const InputLayout layout_;
  const std::shared_ptr<const Convolutions> net_;
  ParameterBlocks blocks_;
};

}  // namespace samara
