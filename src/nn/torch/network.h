// The torch executor of a NetworkDescription, for gradients. Parameters have PyTorch's names and
// layouts (torch_layout.h); the canonical vector goes in and comes out.
// Thread safety: that of torch::nn::Module.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nn/network.h"
#include "nn/torch/torch.h"

namespace samara {

// The activation of `x`, in place.
torch::Tensor Activated(torch::Tensor x, Activation activation);

class TorchNetworkImpl : public torch::nn::Module {
 public:
  explicit TorchNetworkImpl(NetworkDescription network);

  const NetworkDescription& network() const { return network_; }
  // Copies the canonical vector into the parameters. REQUIRES: parameter_count values.
  void Load(std::span<const float> canonical);
  // The parameters as a canonical vector.
  std::vector<float> Store() const;
  // State of recurrent layers by name, [batch][units]: hidden, and an LSTM's memory. Empty at the
  // start of an episode.
  using State = std::map<std::string, std::pair<torch::Tensor, torch::Tensor>>;
  // observations [batch][rows][columns][channels] float32 -> [batch][outputs]. `state` becomes that
  // after these observations; without it recurrent layers start from zeros.
  torch::Tensor forward(const torch::Tensor& observations, State* state = nullptr);

 private:
  NetworkDescription network_;
};
TORCH_MODULE(TorchNetwork);

}  // namespace samara
