// TD3's part of learning, for tests (td3.cc).
#pragma once

#include <memory>

#include "rl/learner/agent.h"
#include "rl/learner/replay_algorithm.h"

namespace samara {

// kConfig: discrete actions, or a network that is no perceptron.
Result<std::unique_ptr<ReplayAlgorithm>> MakeTd3(const AgentSetup& setup);

}  // namespace samara
