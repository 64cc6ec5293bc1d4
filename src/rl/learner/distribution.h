// Distributions over actions, from a policy's outputs.
//
//   categorical   K logits: one of K actions
//   multi         K1 + K2 + .. logits: one of K1, one of K2, ..., independent
//   tanh_normal   D means and D deviations (softplus(p) + 1e-3) of a normal whose samples tanh
//                 squashes into (-1, 1). What is stored and scored is the sample u before
//                 squashing: log p(a) = log N(u) - sum log(1 - tanh(u)^2), exact however far out.
//
// Tensors are [..., n] float32; a row's result depends on that row only. Sampling takes the random
// numbers from its caller, who keys them by slot, episode and step: no generator lives here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "nn/torch/torch.h"
#include "rl/learner/squashed_normal.h"

namespace samara {

// The parameter of a tanh_normal whose deviation is this one. REQUIRES: above 1e-3.
double DeviationParameter(double deviation);

class ActionDistribution {
 public:
  static ActionDistribution Categorical(int64_t actions) {
    return ActionDistribution({actions}, 0);
  }
  // Sizes of the parts, in order.
  static ActionDistribution Multi(std::vector<int64_t> sizes) {
    return ActionDistribution(std::move(sizes), 0);
  }
  static ActionDistribution TanhNormal(int64_t dimensions) {
    return ActionDistribution({}, dimensions);
  }

  int64_t parameters() const;  // network outputs
  // Numbers of one action: an index per part, or the sample before squashing per dimension.
  int64_t components() const;
  bool continuous() const { return dimensions_ > 0; }
  const std::vector<int64_t>& sizes() const { return sizes_; }  // of the parts of a discrete one

  // `actions` and `uniforms`: [..., components()]; indices are int64, samples float32.
  torch::Tensor LogProb(const torch::Tensor& parameters, const torch::Tensor& actions) const;
  // Entropy. Of a continuous action: that of the normal, plus the logarithm of the squashing at one
  // sample drawn from `uniforms` (no closed form is known). [...]
  torch::Tensor Entropy(const torch::Tensor& parameters, const torch::Tensor& uniforms = {}) const;
  // KL(parameters || others), exact: squashing does not change it.
  torch::Tensor Kl(const torch::Tensor& parameters, const torch::Tensor& others) const;
  // From uniforms in (0, 1): the inverse of the distribution function, part by part.
  torch::Tensor Sample(const torch::Tensor& parameters, const torch::Tensor& uniforms) const;
  // The most probable index of each part, the mean.
  torch::Tensor Mode(const torch::Tensor& parameters) const;
  // The index of an action with all its parts, the last part counting fastest: [..., components()]
  // to [..., 1] and back. Of discrete actions.
  torch::Tensor Join(const torch::Tensor& parts) const;
  torch::Tensor Split(const torch::Tensor& index) const;
  // Converts actions to those of the environment: indices stay, samples become their tanh.
  torch::Tensor Squash(const torch::Tensor& actions) const;

 private:
  ActionDistribution(std::vector<int64_t> sizes, int64_t dimensions)
      : sizes_(std::move(sizes)), dimensions_(dimensions) {}
  std::vector<torch::Tensor> LogProbs(const torch::Tensor& parameters) const;  // of each part
  std::pair<torch::Tensor, torch::Tensor> MeanAndDeviation(const torch::Tensor& parameters) const;

  std::vector<int64_t> sizes_;
  int64_t dimensions_;
};

// LogProb and Entropy of single rows on plain numbers, and their derivatives by the row's
// parameters. One thread at a time.
class DistributionRow {
 public:
  explicit DistributionRow(const ActionDistribution& distribution)
      : distribution_(distribution),
        deviations_(distribution.continuous() ? static_cast<size_t>(distribution.components())
                                              : 0) {}

  struct Values {
    float log_prob = 0, entropy = 0;
  };
  // `index`: of a discrete action with all its parts; `sample` and `normal` (what the entropy is
  // sampled with, instead of a uniform number): components() of a continuous one. `by_entropy`
  // null: the entropy is left out.
  Values Evaluate(const float* parameters, int64_t index, const float* sample, const float* normal,
                  float* by_log_prob, float* by_entropy);
  // ActionDistribution's Sample from components() uniforms, or its Mode where they are null. The
  // index of a discrete action with all its parts; samples of a continuous one, and their tanh.
  int64_t DrawIndex(const float* parameters, const float* uniforms) const;
  void DrawSample(const float* parameters, const float* uniforms, float* sample, float* squashed);

 private:
  // Returns a dimension's; rows have the same ones where they do not depend on the observation.
  const SquashedDeviation& DeviationOf(const float* parameters, size_t dimension);
  Values EvaluateContinuous(const float* parameters, const float* sample, const float* normal,
                            float* by_log_prob, float* by_entropy);
  Values EvaluateDiscrete(const float* parameters, int64_t index, float* by_log_prob,
                          float* by_entropy) const;

  const ActionDistribution& distribution_;
  std::vector<SquashedDeviation> deviations_;  // of the last row
};

}  // namespace samara
