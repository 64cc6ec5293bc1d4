// Parts of the losses of actor-critics: the current policy and its value at the steps of unrolls
// that an earlier policy may have played.
//
// Tensors are time-major, [T][B] float32 unless said otherwise. Step t is the transition from x_t
// under a_t, which pays reward t and ends the episode or does not.
#pragma once

#include <map>
#include <string>

#include "rl/learner/algorithm.h"
#include "rl/learner/entropy_cost.h"

namespace samara {

struct ActorCriticSteps {
  torch::Tensor reward;                 // paid by the transition
  torch::Tensor terminated, truncated;  // bool: how the transition ended the episode, if it did
  torch::Tensor log_mu;                 // log mu(a_t | x_t) of the policy that acted
  torch::Tensor final_value;            // V(final observation) where truncated; 0 elsewhere
  torch::Tensor bootstrap;              // [B]: V(x_T)
  // with a gradient
  torch::Tensor log_pi;   // log pi(a_t | x_t)
  torch::Tensor entropy;  // of pi at x_t
  torch::Tensor value;    // V(x_t)
};
ActorCriticSteps EvaluateSteps(const Shard& shard);

// An algorithm whose loss has a cost of the entropy (learn.entropy_*).
class ActorCritic : public Algorithm {
 public:
  std::map<std::string, torch::Tensor> parameters() const override;
  std::map<std::string, double> coefficients() const override;
  void AfterStep() override { entropy_cost_.Bound(); }

 protected:
  explicit ActorCritic(const LearnConfig& learn) : entropy_cost_(learn) {}
  const EntropyCost& entropy_cost() const { return entropy_cost_; }

 private:
  EntropyCost entropy_cost_;
};

// 1 - var(target - value) / var(target); 0 when the targets do not vary.
double ExplainedVariance(const torch::Tensor& target, const torch::Tensor& value);

}  // namespace samara
