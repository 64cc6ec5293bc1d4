// The part of learning that an algorithm defines (learner.h has the rest): a loss, and parameters
// of its own.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/rng.h"
#include "nn/torch/agent_network.h"
#include "rl/learner/distribution.h"
#include "rl/learner/learner_batch.h"

namespace samara {

// An equal part of a batch, and the policy that learns from it.
struct Shard {
  const LearnerBatch& batch;
  const ActionDistribution& distribution;
  AgentNetworkImpl& network;
  CounterRng rng;  // for draws of the loss: keyed by seed, version and shard
};

struct ShardLoss {
  torch::Tensor total;  // scalar with gradient
  // A number for the report, by its name in metrics.jsonl (doc/metrics.md). `mean`: over the
  // shard's steps; otherwise a sum.
  struct Number {
    std::string name;
    double value;
    bool mean;
  };
  std::vector<Number> numbers;  // the same names in the same order for every shard
};

// Thread safety: several threads call Loss at once; no thread calls it while another method runs.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  // The loss of one shard.
  virtual ShardLoss Loss(const Shard& shard) const = 0;
  // Whether Loss is a mean over the shard's steps; otherwise it is a sum.
  virtual bool averages() const = 0;
  // Parameters that are learned next to the network's, by name; their gradients are means.
  virtual std::map<std::string, torch::Tensor> parameters() const { return {}; }
  // Coefficients of the next loss, by their names in metrics.jsonl.
  virtual std::map<std::string, double> coefficients() const { return {}; }
  virtual void AfterStep() {}
};

}  // namespace samara
