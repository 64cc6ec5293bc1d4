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
// The same on the CPU, for plain loops over the steps.
ActorCriticSteps OnCpu(ActorCriticSteps steps);

// Advantages of Schulman et al. 2016 (arXiv 1506.02438), equations 11 and 16:
//   A_t = delta_t + gamma lambda A_{t+1},  delta_t = r_t + gamma V(x_{t+1}) - V(x_t)
// No sum crosses the end of an episode, and beyond a truncation lies the value of the final
// observation. Without a gradient, [T][B].
torch::Tensor GeneralizedAdvantages(const ActorCriticSteps& steps, double gamma, double lambda);

// Uniform numbers in (0, 1), by index: what the entropy of continuous actions is sampled with.
torch::Tensor Uniforms(const CounterRng& rng, at::IntArrayRef sizes);

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
