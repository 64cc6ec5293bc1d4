// Values of actions, Q(x, a), of a network of agents.
#pragma once

#include "nn/torch/agent_network.h"
#include "rl/inference/exploration.h"

namespace samara {

struct ActionValueRule {
  bool dueling = false;
  Exploration exploration;
};

// [...][actions]: the policy's head; with `dueling` V + A less its mean over the actions, A being
// the policy's head (Wang et al. 2016, arXiv 1511.06581, equation 9).
inline torch::Tensor ActionValues(const AgentNetworkImpl::Output& output, bool dueling) {
  if (!dueling) return output.policy;
  return output.value.unsqueeze(-1) + output.policy - output.policy.mean(-1, /*keepdim=*/true);
}

}  // namespace samara
