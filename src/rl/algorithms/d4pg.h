// D4PG's part of learning, for tests (d4pg.cc).
#pragma once

#include <memory>

#include "rl/learner/agent.h"
#include "rl/learner/replay_algorithm.h"

namespace samara {

// kConfig: discrete actions, or a network that is no perceptron.
Result<std::unique_ptr<ReplayAlgorithm>> MakeD4pg(const AgentSetup& setup);

}  // namespace samara
