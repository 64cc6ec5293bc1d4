// The networks of an algorithm in one vector, which an optimizer steps over and a checkpoint holds
// by name.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "nn/initializer.h"
#include "nn/padded_layers.h"
#include "nn/safetensors.h"

namespace samara {

class ParameterBlocks {
 public:
  // Returns the offset of the network's parameters. Its tensors are NAME and a layer's name, the
  // output layer's is `head`, as in nn/torch/agent_network.h.
  size_t Add(const std::string& name, const std::string& head,
             std::shared_ptr<const PaddedLayers> net);
  // Returns the offset of one number.
  size_t AddNumber(const std::string& name);

  size_t size() const { return size_; }  // floats
  // Weights as `initializer` says (nn/initializer.h), of convolutions as a matrix with a row for
  // each output; zeros as biases and shifts, ones as scales.
  void Initialize(uint64_t seed, Initializer initializer, std::span<float> parameters) const;
  // Without padding: dense weights [out][in], those of convolutions [out][in][rows][columns],
  // biases, scales and shifts [out], numbers [].
  std::map<std::string, Tensor> Tensors(std::span<const float> parameters,
                                        const std::string& suffix = "") const;
  // kBadData: a tensor is missing or has another shape; nothing has changed then.
  Status FromTensors(const std::map<std::string, Tensor>& tensors, std::span<float> parameters,
                     const std::string& suffix = "") const;

 private:
  struct Block {
    std::string name, head;
    std::shared_ptr<const PaddedLayers> net;  // null: a number
    size_t offset;
    size_t size() const { return net ? net->size() : 1; }
  };
  std::vector<Block> blocks_;
  size_t size_ = 0;
};

}  // namespace samara
