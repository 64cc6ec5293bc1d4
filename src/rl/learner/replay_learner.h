// An agent that learns from a replay: what every off-policy algorithm of perceptrons needs, without
// torch.
//
// One update, whose parts have these numbers in replay_learner.cc:
//   1 store    the unrolls join the replay, each shard's in a part of its own, and the statistics
//              of observations where the network begins with `normalize`
//   2 sample   of every minibatch, each shard's share from its part, uniformly or by priority;
//              observations are normalized, and images become the features of a torso
//   3 gradient of each shard, on threads; their mean in a fixed order
//   4 step     of the optimizer of each group of parameters that learns in it; the targets follow
//   5 publish  the parameters are the next version, with which inference goes on
// 2 to 4 are repeated until every stored step was learned from replay.ratio times on average: how
// much is learned is a function of how much was played, and neither can run away from the other.
// The number of threads leaves no trace in any of them.
#pragma once

#include <memory>

#include "rl/learner/agent.h"
#include "rl/learner/replay_algorithm.h"

namespace samara {

// Makes an algorithm's part of learning, of a setup whose observations are vectors of floats.
using MakeReplayAlgorithm = Result<std::unique_ptr<ReplayAlgorithm>>(const AgentSetup& setup);

// kConfig for keys that this kind of agent has no use for, and of the algorithm. REQUIRES:
// setup.config.own is a ReplayAlgorithmConfig, and Check(setup.config) is ok.
Result<std::unique_ptr<Agent>> MakeReplayLearner(const AgentSetup& setup,
                                                 MakeReplayAlgorithm* make);
// The agent of an algorithm whose part of learning this function makes; for rows of the registry.
template <MakeReplayAlgorithm* kMake>
Result<std::unique_ptr<Agent>> MakeReplayAgent(const AgentSetup& setup) {
  return MakeReplayLearner(setup, kMake);
}

}  // namespace samara
