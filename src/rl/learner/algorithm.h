// The part of learning that an algorithm defines (learner.h has the rest): a loss, parameters of
// its own, and in how many steps an update learns from its batch.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/rng.h"
#include "nn/torch/agent_network.h"
#include "nn/torch/dense_pass.h"
#include "rl/learner/action_values.h"
#include "rl/learner/distribution.h"
#include "rl/learner/learner_batch.h"
#include "rl/learner/replay_keys.h"
#include "rl/replay/sequence_replay.h"

namespace samara {

// One of the steps of an update: minibatch `minibatch` of epoch `epoch`.
struct Pass {
  int64_t epoch = 0, minibatch = 0;
};

// Holds what an algorithm derives from a shard before an epoch.
class Prepared {
 public:
  virtual ~Prepared() = default;
  torch::Tensor value_target;  // [T][B]: what the statistics of values are taken from
};

// An equal part of a batch, and the policy that learns from it.
struct Shard {
  const LearnerBatch& batch;
  const ActionDistribution& distribution;
  AgentNetworkImpl& network;
  CounterRng rng;  // for draws of the loss: keyed by seed, version, shard and pass
  Pass pass = {};
  CounterRng order{0};                 // for the order of an epoch: by seed, version, shard, epoch
  const Prepared* prepared = nullptr;  // what Prepare made of it
  // of algorithms with a replay:
  AgentNetworkImpl* target = nullptr;     // the network that follows
  torch::Tensor weight = {};              // [B] float32: of each sequence in the loss
  std::span<const StepRange> steps = {};  // [B]: that each sequence is learned from
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
  std::vector<Number> numbers;          // the same names in the same order for every shard
  std::vector<double> priorities = {};  // of each sequence, of algorithms with a replay
};

// Describes an algorithm that learns values of actions from a replay of unrolls.
struct ReplayUse {
  ReplayKeys keys;
  uint32_t overlap = 0;        // entries of a sequence before those that it learns from
  bool cross_episodes = true;  // false: steps of a sequence are of one episode
  uint64_t target_every = 1;   // steps of the optimizer, after which the target is the network
  ActionValueRule acting;
  bool policy_bias = true, reward_clip = true;  // of the network (nn/torch/agent_network.h)
};

// Thread safety: several threads call Loss and Prepare at once; no thread calls them while another
// method runs.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  // An update makes one step for each minibatch of each epoch, in this order.
  virtual int64_t epochs() const { return 1; }
  virtual int64_t minibatches() const { return 1; }
  // Called for each shard before each epoch. `prepared`: null, or what the last epoch had.
  virtual void Prepare(const Shard&, std::unique_ptr<Prepared>& /*prepared*/) const {}
  // The loss of one shard, or of the minibatch of it that shard.pass names.
  virtual ShardLoss Loss(const Shard& shard) const = 0;
  // The same by hand, of a network that `pass` can evaluate: the total without a gradient, and its
  // derivatives in `pass`. Called where by_hand().
  virtual bool by_hand() const { return false; }
  virtual ShardLoss LossByHand(const Shard& shard, DensePass& /*pass*/) const {
    return Loss(shard);
  }
  // Whether an update is over after a step whose loss had these numbers.
  virtual bool Enough(const std::map<std::string, double>&) const { return false; }
  // Whether Loss is a mean over the shard's steps; otherwise it is a sum.
  virtual bool averages() const = 0;
  // Parameters that are learned next to the network's, by name; their gradients are means.
  virtual std::map<std::string, torch::Tensor> parameters() const { return {}; }
  // Coefficients of the next loss, by their names in metrics.jsonl.
  virtual std::map<std::string, double> coefficients() const { return {}; }
  virtual void AfterStep() {}
  // Not null: it learns from stored unrolls instead of the newest ones, in steps of one pass each.
  virtual const ReplayUse* replay() const { return nullptr; }
  // The priority of a sequence, `steps` of an unroll, that is new in the replay.
  virtual double Priority(const Unroll&, const StepRange& /*steps*/) const { return 1; }
};

}  // namespace samara
