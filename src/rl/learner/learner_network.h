// The networks of a learner: what its configuration describes for its environment, or why they do
// not fit each other.
#pragma once

#include "nn/torch/agent_network.h"
#include "rl/learner/agent.h"
#include "rl/learner/algorithm.h"
#include "rl/learner/input_tensors.h"

namespace samara {

// The network that learns. `replay`: of an algorithm that has one, else null. kConfig for a network
// that does not fit the environment or the algorithm.
Result<AgentNetworkConfig> LearningNetwork(const AgentSetup& setup, const InputLayout& layout,
                                           const ReplayUse* replay);

// `learning` as it infers.
AgentNetworkConfig InferringNetwork(AgentNetworkConfig learning, const AgentSetup& setup);

}  // namespace samara
