// The learner: an agent that turns batches of unrolls into new versions of its network by gradient
// descent. The loss is an algorithm's (algorithm.h); what every algorithm needs is here.
//
// One update, whose steps have these numbers in learner.cc:
//   1 shard    equal parts of the batch, each with a loss and a gradient of its own, on threads
//   2 combine  the mean over all shards of all learners, in a fixed order
//   3 step     of the optimizer; none where the loss or the gradient is not finite
//   4 publish  the parameters are the next version, with which inference goes on
// The number of threads leaves no trace in any of them.
#pragma once

#include <memory>

#include "rl/learner/agent.h"

namespace samara {

class Algorithm;

// kConfig for a network that does not fit the environment. REQUIRES: Check(setup.config) is ok.
Result<std::unique_ptr<Agent>> MakeLearner(const AgentSetup& setup,
                                           std::unique_ptr<Algorithm> algorithm);

}  // namespace samara
