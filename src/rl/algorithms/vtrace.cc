#include "rl/algorithms/vtrace.h"

#include <cmath>

#include "core/check.h"

namespace samara {
namespace {

using torch::Tensor;

// x_1 ... x_T of x_0 ... x_{T-1} and x_T.
Tensor Next(const Tensor& x, const Tensor& last) {
  return torch::cat({x.slice(0, 1), last.unsqueeze(0)}, 0);
}

// s_t = x_t + decay_t s_{t+1}, s_T = 0.
Tensor SumBackwards(const Tensor& x, const Tensor& decay) {
  Tensor sums = torch::empty_like(x);
  Tensor sum = torch::zeros_like(x[0]);
  for (int64_t t = x.size(0); t-- > 0;) {
    sum = x[t] + decay[t] * sum;
    sums[t] = sum;
  }
  return sums;
}

void CheckShapes(const VtraceInput& in) {
  const auto shape = in.reward.sizes();
  CHECK_EQ(in.reward.dim(), 2);
  for (const Tensor* x : {&in.log_rho, &in.terminated, &in.truncated, &in.value, &in.final_value}) {
    CHECK(x->sizes() == shape);
  }
  CHECK_EQ(in.bootstrap.dim(), 1);
  CHECK_EQ(in.bootstrap.size(0), shape[1]);
}

}  // namespace

VtraceTargets Vtrace(const VtraceConfig& config, const VtraceInput& in) {
  const torch::NoGradGuard no_gradient;
  CheckShapes(in);
  CHECK(config.form == "impala" || config.form == "seed");
  CHECK(config.form == "seed" || config.rho_clip >= config.c_clip);
  CHECK(config.truncation == "bootstrap" || config.truncation == "ignore");
  const bool ignore = config.truncation == "ignore";
  const Tensor weight = in.log_rho.exp();
  const Tensor discount = config.gamma * in.terminated.logical_not().to(in.value.dtype());
  const Tensor taught =
      ignore ? in.truncated.logical_not().to(in.value.dtype()) : torch::ones_like(in.value);
  // neither sums nor traces cross the end of an episode
  const Tensor carried = discount * in.truncated.logical_not();
  const Tensor rho = weight.clamp_max(config.rho_clip);
  const Tensor rho_policy = weight.clamp_max(config.rho_clip_policy);
  const auto after = [&](const Tensor& x) {  // of x_{t+1}, or of the final observation
    return torch::where(in.truncated, in.final_value, Next(x, in.bootstrap));
  };
  const Tensor error = taught * (in.reward + discount * after(in.value) - in.value);

  if (config.form == "seed") {
    // acc_t = rho_t (e_t + F_t), F_t = gamma lambda acc_{t+1}
    const Tensor acc = SumBackwards(rho * error, rho * config.lambda * carried);
    const Tensor advantage =
        error + config.lambda * carried * Next(acc, torch::zeros_like(in.bootstrap));
    return {in.value + acc, rho_policy * advantage};
  }
  // v_t = V_t + sum over s >= t of (prod of gamma c) delta_s
  const Tensor c = config.lambda * weight.clamp_max(config.c_clip);
  const Tensor target = in.value + SumBackwards(rho * error, carried * c);
  const Tensor advantage = taught * (in.reward + discount * after(target) - in.value);
  return {target, rho_policy * advantage};
}

EntropyCost::EntropyCost(double cost, std::optional<double> target, double speed)
    : target_(target), speed_(speed) {
  CHECK(cost >= 0 && (!target || cost > 0)) << "entropy cost " << cost;
  parameter_ = torch::full({}, cost > 0 ? std::log(cost) / speed : -INFINITY, torch::kFloat32);
  parameter_.set_requires_grad(target.has_value());
}

Tensor EntropyCost::coefficient() const { return (speed_ * parameter_).exp(); }

void EntropyCost::Bound() {
  const torch::NoGradGuard no_gradient;
  if (target_) parameter_.clamp_(-20 / speed_, 20 / speed_);
}

Tensor EntropyCost::Loss(const Tensor& mean_entropy) const {
  if (!target_) return torch::zeros_like(mean_entropy);
  return coefficient() * (mean_entropy.detach() - *target_);
}

VtraceLoss MakeVtraceLoss(const VtraceLossConfig& config, const VtraceTargets& targets,
                          const Tensor& log_pi, const Tensor& log_mu, const Tensor& entropy,
                          const Tensor& value, const EntropyCost& entropy_cost) {
  CHECK(config.over == "mean" || config.over == "sum");
  const auto over = [&](const Tensor& x) { return config.over == "sum" ? x.sum() : x.mean(); };
  VtraceLoss loss;
  loss.policy = -over(log_pi * targets.advantage);
  loss.value = over(0.5 * (targets.value - value).square());
  loss.entropy = over(entropy);
  loss.kl = over(log_mu - log_pi);
  loss.mean_entropy = entropy.mean();
  loss.total = loss.policy + config.value_cost * loss.value -
               entropy_cost.coefficient().detach() * loss.entropy + config.kl_cost * loss.kl +
               entropy_cost.Loss(loss.mean_entropy);
  return loss;
}

}  // namespace samara
