// V-trace: off-policy actor-critic targets. Espeholt et al. 2018 (IMPALA, arXiv 1802.01561),
// section 4. The program without torch has the parameters alone.
#include <sstream>

#include "rl/algorithms/registry.h"
#include "rl/algorithms/value_targets.h"
#include "rl/algorithms/vtrace_config.h"
#ifdef SAMARA_AGENTS
#include <cmath>

#include "core/check.h"
#include "rl/algorithms/vtrace.h"
#include "rl/learner/actor_critic.h"
#endif

namespace samara {

// ---- parameters

void VtraceParameters::Bind(ConfigTable& table) {
  table.Add("vtrace.form", &vtrace.form, kVtraceFormNames,
            "the paper's, or generalised advantages with importance weights");
  table.Add("vtrace.gamma", &vtrace.gamma, {0, 1}, "", "discount per agent step");
  table.Add("vtrace.lambda", &vtrace.lambda, {0, 1}, "", "lambda of the traces");
  table.Add("vtrace.rho_clip", &vtrace.rho_clip, {0, 1e9}, "",
            "maximum importance weight (rho) in value targets");
  table.Add("vtrace.rho_clip_policy", &vtrace.rho_clip_policy, {0, 1e9}, "",
            "maximum importance weight (rho) in the policy's advantage");
  table.Add("vtrace.c_clip", &vtrace.c_clip, {0, 1e9}, "",
            "maximum importance weight (c) of the traces; impala only");
  table.Add("vtrace.clip", &loss.clip, {0, 1e9}, "",
            "maximum change of an action's probability ratio, as PPO's (APPO); 0 = V-trace's "
            "policy gradient",
            OnResume::kMustMatchAdded);
  table.Add("vtrace.truncation", &vtrace.truncation, kTruncationNames,
            "value after a truncation: bootstrapped, or the transition is ignored");
  table.Add("loss.value_cost", &loss.value_cost, {0, 1e6}, "",
            "weight of the value error in the loss");
  table.Add("loss.kl_cost", &loss.kl_cost, {0, 1e6}, "",
            "weight of the divergence from the behaviour policy in the loss");
  table.Add("loss.over", &loss.over, kLossOverNames,
            "reduction of the loss over the steps of a batch");
}

Status VtraceParameters::Check(const LearningConfig& config) const {
  RETURN_IF_ERROR(CheckNoNormalizedValue(config));
  if (loss.clip > 0 && vtrace.rho_clip_policy != VtraceConfig().rho_clip_policy)
    return {Code::kConfig,
            "vtrace.rho_clip_policy: has no effect with vtrace.clip, whose ratio takes its place; "
            "expected it left out"};
  if (vtrace.form == VtraceForm::kSeed || vtrace.rho_clip >= vtrace.c_clip) return Status::Ok();
  std::ostringstream why;
  why << "vtrace.rho_clip=" << vtrace.rho_clip
      << ": expected at least vtrace.c_clip=" << vtrace.c_clip;
  return {Code::kConfig, why.str()};
}

#ifdef SAMARA_AGENTS
// ---- targets and loss

namespace {

using torch::Tensor;

// x_1 ... x_T of x_0 ... x_{T-1} and x_T.
Tensor Next(const Tensor& x, const Tensor& last) {
  return torch::cat({x.slice(0, 1), last.unsqueeze(0)}, 0);
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
  CHECK(config.form == VtraceForm::kSeed || config.rho_clip >= config.c_clip);
  const bool ignore = config.truncation == Truncation::kIgnore;
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

  if (config.form == VtraceForm::kSeed) {
    // acc_t = rho_t (e_t + F_t), F_t = gamma lambda acc_{t+1}
    const Tensor acc = SumBackwards(rho * error, rho * config.lambda * carried);
    const Tensor advantage =
        error + config.lambda * carried * Next(acc, torch::zeros_like(in.bootstrap));
    return {in.value + acc, rho_policy * advantage, advantage};
  }
  // v_t = V_t + sum over s >= t of (prod of gamma c) delta_s
  const Tensor c = config.lambda * weight.clamp_max(config.c_clip);
  const Tensor target = in.value + SumBackwards(rho * error, carried * c);
  const Tensor advantage = taught * (in.reward + discount * after(target) - in.value);
  return {target, rho_policy * advantage, advantage};
}

VtraceLoss MakeVtraceLoss(const VtraceLossConfig& config, const VtraceTargets& targets,
                          const Tensor& log_pi, const Tensor& log_mu, const Tensor& entropy,
                          const Tensor& value, const EntropyCost& entropy_cost) {
  const auto over = [&](const Tensor& x) {
    return config.over == LossOver::kSum ? x.sum() : x.mean();
  };
  VtraceLoss loss;
  if (config.clip > 0) {
    const Tensor ratio = (log_pi - log_mu).exp();
    const Tensor clipped = ratio.clamp(1 - config.clip, 1 + config.clip);
    loss.policy = -over(torch::minimum(ratio * targets.unweighted, clipped * targets.unweighted));
  } else {
    loss.policy = -over(log_pi * targets.advantage);
  }
  loss.value = over(0.5 * (targets.value - value).square());
  loss.entropy = over(entropy);
  loss.kl = over(log_mu - log_pi);
  loss.mean_entropy = entropy.mean();
  loss.total = loss.policy + config.value_cost * loss.value -
               entropy_cost.coefficient().detach() * loss.entropy + config.kl_cost * loss.kl +
               entropy_cost.Loss(loss.mean_entropy);
  return loss;
}

namespace {

class VtraceAlgorithm : public ActorCritic {
 public:
  explicit VtraceAlgorithm(const LearningConfig& config)
      : ActorCritic(config.learn), config_(dynamic_cast<const VtraceParameters&>(*config.own)) {}

  ShardLoss Loss(const Shard& shard) const override {
    // 1 the current policy at the steps of the unrolls
    const ActorCriticSteps steps = EvaluateSteps(shard);
    // 2 the targets (section 4.1); 3 the loss (section 4.2)
    return LossOf(steps, TargetsOf(steps));
  }
  bool by_hand() const override { return true; }
  ShardLoss LossByHand(const Shard& shard, DensePass& pass) const override {
    DenseSteps dense(shard, pass);
    const ActorCriticSteps& steps = dense.steps();
    const VtraceTargets targets = TargetsOf(steps);
    const VtraceLossConfig& rule = config_.loss;
    const double weight = averages() ? 1.0 / static_cast<double>(steps.value.numel()) : 1;
    Tensor by_log_pi = -targets.advantage;
    if (rule.clip > 0) {
      const Tensor ratio = (steps.log_pi - steps.log_mu).exp(), gain = ratio * targets.unweighted;
      const Tensor clipped = ratio.clamp(1 - rule.clip, 1 + rule.clip) * targets.unweighted;
      by_log_pi = torch::where(gain <= clipped, -gain, torch::zeros_like(gain));
    }
    dense.Differentiate(weight * (by_log_pi - rule.kl_cost),
                        -weight * entropy_cost().coefficient().item<double>(),
                        weight * rule.value_cost * (steps.value - targets.value));
    return LossOf(steps, targets);
  }
  bool averages() const override { return config_.loss.over == LossOver::kMean; }

 private:
  // Returns targets by how far the policy has moved from the one that acted.
  VtraceTargets TargetsOf(const ActorCriticSteps& steps) const {
    return Vtrace(config_.vtrace, {.log_rho = (steps.log_pi - steps.log_mu).detach(),
                                   .reward = steps.reward,
                                   .terminated = steps.terminated,
                                   .truncated = steps.truncated,
                                   .value = steps.value.detach(),
                                   .final_value = steps.final_value,
                                   .bootstrap = steps.bootstrap});
  }

  ShardLoss LossOf(const ActorCriticSteps& steps, const VtraceTargets& targets) const {
    const VtraceLoss loss = MakeVtraceLoss(config_.loss, targets, steps.log_pi, steps.log_mu,
                                           steps.entropy, steps.value, entropy_cost());
    const Tensor log_rho = (steps.log_pi - steps.log_mu).detach();
    const auto number = [](const Tensor& x) { return x.item<double>(); };
    return {
        .total = loss.total,
        .numbers = {{"policy_loss", number(loss.policy), averages()},
                    {"value_loss", number(loss.value), averages()},
                    {"kl", number(loss.kl), averages()},
                    {"entropy", number(loss.mean_entropy), true},
                    {"importance_weight", number(log_rho.exp().mean()), true},
                    {"explained_variance", ExplainedVariance(targets.value, steps.value), true}}};
  }

  const VtraceParameters config_;
};

constexpr MakeAlgorithm* kMakeVtrace = NewAlgorithm<VtraceAlgorithm>;

}  // namespace
#else
constexpr MakeAlgorithm* kMakeVtrace = nullptr;
#endif

LearningAlgorithm VtraceRow() {
  return {.name = "vtrace",
          .about = "V-trace with central inference",
          .paper = "IMPALA, Espeholt et al. 2018; SEED RL, 2020",
          .parameters = NewParameters<VtraceParameters>,
          .make = kMakeVtrace};
}

}  // namespace samara
