// Parts of the losses of actor-critics: the current policy and its value at the steps of unrolls
// that an earlier policy may have played.
//
// Tensors are time-major, [T][B] float32 unless said otherwise. Step t is the transition from x_t
// under a_t, which pays reward t and ends the episode or does not.
#pragma once

#include <map>
#include <string>
#include <vector>

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

// The same where the network is dense, by hand: the steps have no gradient, and what a loss says of
// them becomes its derivatives by the network's outputs.
class DenseSteps {
 public:
  // Evaluates `pass` for every entry of the batch.
  DenseSteps(const Shard& shard, DensePass& pass);
  const ActorCriticSteps& steps() const { return steps_; }
  // The loss's derivatives by each step's log pi and value, [T][B], and by each entropy.
  void Differentiate(const torch::Tensor& by_log_pi, double by_entropy,
                     const torch::Tensor& by_value);

 private:
  DensePass& pass_;
  ActorCriticSteps steps_;
  // [T x B][outputs]: of log pi and the entropy by the policy's outputs
  std::vector<float> log_pi_slopes_, entropy_slopes_;
};

// s_t = x_t + decay_t s_{t+1}, s_T = 0: both [T][B] float32, without a gradient. On the CPU, where
// a plain loop takes less time than T operations on tensors, and than as many on a GPU.
torch::Tensor SumBackwards(const torch::Tensor& x, const torch::Tensor& decay);

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
