#include "rl/learner/entropy_cost.h"

#include <cmath>

#include "core/check.h"

namespace samara {

using torch::Tensor;

EntropyCost::EntropyCost(double cost, std::optional<double> target, double speed)
    : target_(target), speed_(speed) {
  CHECK(cost >= 0 && (!target || cost > 0)) << "entropy cost " << cost;
  parameter_ = torch::full({}, cost > 0 ? std::log(cost) / speed : -INFINITY, torch::kFloat32);
  parameter_.set_requires_grad(target.has_value());
}

EntropyCost::EntropyCost(const LearnConfig& learn)
    : EntropyCost(learn.entropy_cost, learn.entropy_target, learn.entropy_speed) {}

Tensor EntropyCost::coefficient() const { return (speed_ * parameter_).exp(); }

void EntropyCost::Bound() {
  const torch::NoGradGuard no_gradient;
  if (target_) parameter_.clamp_(-20 / speed_, 20 / speed_);
}

Tensor EntropyCost::Loss(const Tensor& mean_entropy) const {
  if (!target_) return torch::zeros_like(mean_entropy);
  return coefficient() * (mean_entropy.detach() - *target_);
}

}  // namespace samara
