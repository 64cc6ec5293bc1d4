// TD3 and D4PG share this: a deterministic policy that climbs the values of critics (Silver et al.
// 2014), targets of both, and noise on the actions that are played.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rl/learner/agent.h"
#include "rl/learner/critics.h"
#include "rl/learner/replay_algorithm.h"

namespace samara {

struct DeterministicPolicyKeys {
  double gamma = 0.99;
  int64_t steps = 1;
  double noise = 0.1;
  bool random_start = true;
  double policy_rate = 1;
  void Bind(ConfigTable& table, const std::string& algorithm);
};

// The policy's parameters, then the critics'; the targets are alike.
class DeterministicActorCritic : public ReplayAlgorithm {
 public:
  const ParameterBlocks& learned() const override { return learned_; }
  const ParameterBlocks& targets() const override { return targets_; }
  size_t acting() const override { return policy_->size(); }
  std::vector<ParameterGroup> groups() const override { return {policy_group_, critics_group_}; }
  ReturnRule returns() const override { return {keys_.steps, keys_.gamma}; }
  bool explores() const override { return true; }
  std::span<float> Weighted(std::span<float> gradient) const override {
    return critics_group_.Of(gradient);
  }

  ModelShape shape() const override;
  // Greedy rows get the policy's action; others one at random until the first step of the learner,
  // with `random_start`, and the policy's with noise from then on.
  void Act(std::span<const float> acting, ReplayScratch& scratch,
           InferenceBatch& batch) const override;

 protected:
  struct Scratch : ReplayScratch {
    PerceptronPass policy;
    Critics::Scratch critics;
    std::vector<float> action;     // [rows][actions]
    std::vector<float> by_output;  // [rows][outputs of a critic]
  };
  struct Networks {
    std::shared_ptr<const Perceptron> policy, critic;
  };
  // kConfig: actions that are not continuous, or a network that is no perceptron.
  static Result<Networks> MakeNetworks(const AgentSetup& setup, int64_t critic_outputs);

  // `critics`: how many; `every`: of so many steps the policy learns in the last.
  DeterministicActorCritic(const LearningConfig& config, const DeterministicPolicyKeys& keys,
                           const Networks& networks, int64_t critics, int64_t every);
  void Prepare(Scratch& scratch, size_t rows_max) const;

  // An action of the policy for each row: policy_->Output(s.policy, row).
  template <typename Observation>
  void EvaluatePolicy(std::span<const float> all, size_t rows, const Observation& observation,
                      Scratch& s) const {
    Evaluate(*policy_, policy_group_.Of(all), rows, observation, s.policy);
  }
  // Outputs of the first critic for the policy's actions at the minibatch's observations.
  void EvaluatePolicysActions(const ReplayMinibatch& minibatch, Scratch& s) const;
  // The gradient of minus the mean value of these actions, by the policy. `s.by_output`:
  // derivatives of each row's value by the critic's outputs. The derivative by each row's action is
  // scaled down to this norm (0: it is not).
  void PolicyGradient(const ReplayMinibatch& minibatch, double norm_max, Scratch& s,
                      std::span<float> gradient) const;

  const size_t actions_;
  const std::shared_ptr<const Perceptron> policy_;
  const Critics critics_;
  const ParameterGroup policy_group_, critics_group_;

 private:
  const DeterministicPolicyKeys keys_;
  const ReplayKeys replay_;
  const LearnConfig learn_;
  ParameterBlocks learned_, targets_;
};

}  // namespace samara
