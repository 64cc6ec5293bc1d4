// SAC's part of learning, for tests (sac.cc).
#pragma once

#include <memory>

#include "rl/learner/agent.h"
#include "rl/learner/replay_algorithm.h"

namespace samara {

// kConfig: discrete actions, or a network that is no perceptron.
Result<std::unique_ptr<ReplayAlgorithm>> MakeSac(const AgentSetup& setup);

}  // namespace samara
