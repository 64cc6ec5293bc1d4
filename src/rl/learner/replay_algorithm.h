// The part of learning from a replay that an algorithm defines (replay_learner.h has the rest):
// perceptrons, how they act, and the gradient of a minibatch. Where observations are images they
// are the features of an ImageTorso here, which the learner has; where the network begins with
// `normalize` they are normalized ones.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/rng.h"
#include "rl/inference/model.h"
#include "rl/learner/parameter_blocks.h"
#include "rl/learner/replay_keys.h"
#include "rl/replay/unroll_replay.h"

namespace samara {

// An algorithm's memory of one thread.
class ReplayScratch {
 public:
  virtual ~ReplayScratch() = default;
};

// A part of what is learned that has an optimizer of its own: its gradient is clipped apart.
struct ParameterGroup {
  std::string name;            // in a checkpoint
  size_t first = 0, size = 0;  // floats of the learned parameters
  int64_t every = 1;           // of so many steps of the learner the last is one of this group
  double rate = 1;             // factor of optimizer.learning_rate

  bool Learns(uint64_t step) const { return (step + 1) % static_cast<uint64_t>(every) == 0; }
  template <typename T>
  std::span<T> Of(std::span<T> learned) const {
    return learned.subspan(first, size);
  }
};

struct ReplayMinibatch {
  uint64_t step = 0;  // of the learner, from 0: which groups learn
  std::span<const Transition> steps;
  std::span<const float> weights;           // of each step in the loss of its value
  std::span<const float> learned, targets;  // parameters
  CounterRng noise;                         // for draws of the loss
  // out: how far off the value of each step is, its priority from now on
  std::span<float> errors;
  // By step, what follows it as the learned networks see it, and not those of the targets; empty:
  // the same.
  std::span<const std::span<const std::byte>> next_learned = {};
  // out: derivatives of the values' loss by each step's observation, [steps][floats of one], added
  // to what is there; empty: not wanted
  std::span<float> by_observation = {};

  std::span<const std::byte> NextLearned(size_t row) const {
    return next_learned.empty() ? steps[row].next_observation : next_learned[row];
  }
};

// Thread safety: constant; a scratch is its thread's.
class ReplayAlgorithm {
 public:
  virtual ~ReplayAlgorithm() = default;
  // The parameters that are learned, those that act first; and those that follow them.
  virtual const ParameterBlocks& learned() const = 0;
  virtual const ParameterBlocks& targets() const = 0;
  virtual size_t acting() const = 0;  // floats of `learned` that act
  // All of `learned`, in order.
  virtual std::vector<ParameterGroup> groups() const {
    return {{.name = "", .first = 0, .size = learned().size()}};
  }
  virtual ReturnRule returns() const = 0;
  // Whether Gradient asks for NextLearned.
  virtual bool learned_sees_next() const { return false; }
  virtual bool explores() const { return false; }  // as Model::explores
  // Parameters at the beginning.
  virtual void InitializeLearned(uint64_t seed, Initializer initializer,
                                 std::span<float> learned) const {
    this->learned().Initialize(seed, initializer, learned);
  }
  // The part of the learned parameters that the targets follow, and copy at the beginning.
  virtual std::span<const float> Followed(std::span<const float> learned) const { return learned; }
  // Coefficient of Polyak averaging after step number `step`: the share of the targets that is
  // kept; the rest is what they follow.
  virtual double polyak(uint64_t step) const = 0;

  virtual std::unique_ptr<ReplayScratch> MakeScratch(size_t rows_max) const = 0;
  virtual ModelShape shape() const = 0;
  // Fills what `batch` says of its rows, but `version`.
  virtual void Act(std::span<const float> acting, ReplayScratch& scratch,
                   InferenceBatch& batch) const = 0;

  // Writes the gradient of the loss, a mean over the minibatch, by `learned`: zeros for a group
  // that does not learn in this step. Returns means for the report, by their names in metrics.jsonl
  // (doc/metrics.md), always the same; one is "loss".
  virtual std::map<std::string, double> Gradient(const ReplayMinibatch& minibatch,
                                                 ReplayScratch& scratch,
                                                 std::span<float> gradient) const = 0;
  // The part of a gradient that minibatch.weights scale: the learner divides it by the largest of
  // them.
  virtual std::span<float> Weighted(std::span<float> gradient) const { return gradient; }
  // Called after each step.
  virtual void Bound(std::span<float> /*learned*/) const {}
  // Coefficients of the next loss, by their names in metrics.jsonl.
  virtual std::map<std::string, double> coefficients(std::span<const float> /*learned*/) const {
    return {};
  }

  void Initialize(uint64_t seed, Initializer initializer, std::span<float> learned,
                  std::span<float> targets) const {
    InitializeLearned(seed, initializer, learned);
    ResetTargets(learned, targets);
  }
  void ResetTargets(std::span<const float> learned, std::span<float> targets) const {
    std::ranges::copy(Followed(learned), targets.begin());
  }
  // What follows step number `step` of the optimizer.
  void AfterStep(uint64_t step, std::span<float> learned, std::span<float> targets) const {
    Follow(polyak(step), Followed(learned), targets);
    Bound(learned);
  }
  // Moves the targets towards what they follow.
  static void Follow(double polyak, std::span<const float> followed, std::span<float> targets) {
    if (polyak == 1) return;
    if (polyak == 0) {
      std::ranges::copy(followed, targets.begin());
      return;
    }
    const auto kept = static_cast<float>(polyak), added = 1 - kept;
    for (size_t i = 0; i < targets.size(); ++i)
      targets[i] = kept * targets[i] + added * followed[i];
  }
};

}  // namespace samara
