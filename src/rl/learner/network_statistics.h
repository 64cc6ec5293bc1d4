// The statistics of an agent's network, observations' and values', over all that its run has seen.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nn/torch/agent_network.h"
#include "rl/learner/running_statistics.h"

namespace samara {

class NetworkStatistics {
 public:
  // Those that the network has.
  explicit NetworkStatistics(const AgentNetworkImpl& network);

  size_t numbers() const;  // 0: it has none
  // Returns sums as RunningStatistics::Moments does, first those of observations; what the network
  // has no statistics of is not read. `values` may be undefined: none were seen.
  std::vector<float> Moments(const torch::Tensor& observations, const torch::Tensor& values) const;
  // Adds them, and sets the network's statistics.
  void Merge(std::span<const float> moments, AgentNetworkImpl& network);
  // Takes what the network carries.
  void Assume(const AgentNetworkImpl& network);

  std::string Save() const;
  Status Restore(std::string_view saved);  // kBadData; then nothing has changed

 private:
  void SetObservations(const AgentNetworkImpl::Statistics& to) const;

  std::optional<RunningStatistics> observations_, values_;
};

}  // namespace samara
