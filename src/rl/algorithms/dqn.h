// DQN's part of learning, for tests (dqn.cc).
#pragma once

#include <memory>

#include "rl/learner/agent.h"
#include "rl/learner/replay_algorithm.h"

namespace samara {

// kConfig: continuous actions, or a network that is no perceptron.
Result<std::unique_ptr<ReplayAlgorithm>> MakeDqn(const AgentSetup& setup);

}  // namespace samara
