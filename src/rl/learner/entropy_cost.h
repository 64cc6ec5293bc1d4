// The cost of the policy's entropy in a loss: fixed, or moved so that the entropy approaches a
// target. One thread at a time, but any number may read.
#pragma once

#include <optional>

#include "nn/torch/torch.h"
#include "rl/learner/learning_config.h"

namespace samara {

class EntropyCost {
 public:
  // `target`: nats. Zero is a target like any other. `speed` scales the logarithm's parameter.
  EntropyCost(double cost, std::optional<double> target, double speed = 10);
  explicit EntropyCost(const LearnConfig& learn);  // learn.entropy_*

  torch::Tensor coefficient() const;  // scalar > 0 (or 0 when the cost is 0)
  // Moves the coefficient where it is added to the loss; a constant zero without a target.
  torch::Tensor Loss(const torch::Tensor& mean_entropy) const;
  // The parameter to optimize; undefined without a target.
  torch::Tensor parameter() const { return target_ ? parameter_ : torch::Tensor(); }
  // To be called after each step of the optimizer: keeps the coefficient within e^-20 and e^20, so
  // that a run that went astray finds back.
  void Bound();

 private:
  const std::optional<double> target_;
  const double speed_;
  torch::Tensor parameter_;
};

}  // namespace samara
