// The learner: an agent that turns batches of unrolls into new versions of its network by gradient
// descent. The loss is an algorithm's (algorithm.h); what every algorithm needs is here.
//
// One update of an algorithm without a replay, whose parts have these numbers in learner.cc:
//   1 batch    equal parts of the unrolls, the shards, as tensors
//   2 shard    each shard's loss and gradient, on threads
//   3 combine  the mean over all shards of all learners, in a fixed order
//   4 step     of the optimizer; none where the loss or the gradient is not finite
//   5 publish  the parameters, with the statistics that the batch has changed, are the next
//              version, with which inference goes on
// 2 to 4 are repeated for every minibatch of every epoch that the algorithm asks for. With a replay
// the unrolls join it first, and 1 to 4 are repeated, with sequences that are sampled, for every
// step that is due (replay_keys.h). The number of threads leaves no trace in any of them.
#pragma once

#include <memory>

#include "rl/learner/agent.h"

namespace samara {

class Algorithm;

// kConfig for a network that does not fit the environment. REQUIRES: Check(setup.config) is ok.
Result<std::unique_ptr<Agent>> MakeLearner(const AgentSetup& setup,
                                           std::unique_ptr<Algorithm> algorithm);

}  // namespace samara
