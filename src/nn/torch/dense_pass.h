// A pass through an agent's network of dense layers and back, by hand: for minibatches of tens of
// rows torch's graph takes longer than the products. Values and derivatives have the bits of
// AgentNetworkImpl::forward and of torch's gradients through it.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "nn/torch/agent_network.h"

namespace samara {

// Thread safety: one thread at a time.
class DensePass {
 public:
  // Place for the observations of so many rows, [rows][channels]; Forward evaluates them, and
  // changes them. REQUIRES: network.dense(); rows > 0.
  std::span<float> Rows(const AgentNetworkImpl& network, size_t rows);
  void Forward(const AgentNetworkImpl& network);
  // Evaluates rows of `observations` [N][channels], by number.
  void Forward(const AgentNetworkImpl& network, const float* observations,
               std::span<const int64_t> rows);
  // Outputs of the policy and values of the rows; and a place for a loss's derivatives by them.
  std::span<const float> policy() const { return policy_; }
  std::span<const float> value() const { return value_; }
  std::span<float> by_policy() { return by_policy_; }
  std::span<float> by_value() { return by_value_; }
  // The loss's derivatives by the network's parameters that have one, in the order of their names.
  // REQUIRES: `network` is as it was for Forward, and is not frozen.
  void Backward(const AgentNetworkImpl& network, std::span<float> gradient);

 private:
  // One of the network's perceptrons.
  struct Part {
    std::vector<float> packed, by_output, gradient;  // packed: where the network is not frozen
    std::optional<PerceptronPass> pass;
  };
  void Run(const AgentNetworkImpl::Native& native, Part& part) const;
  void RunBack(const AgentNetworkImpl::Native& native, Part& part, std::span<float> gradient) const;

  Part policy_part_, value_part_;  // the latter where the value has a torso of its own
  size_t rows_ = 0;
  std::vector<float> input_;  // [rows_][channels], normalized by Forward
  std::vector<float> policy_, value_, by_policy_, by_value_;
};

}  // namespace samara
