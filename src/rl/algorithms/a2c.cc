// A2C: advantage actor-critic with synchronous updates. Mnih et al. 2016 (arXiv 1602.01783),
// section 4 and algorithm S3; the advantages are those of Schulman et al. 2016 (arXiv 1506.02438),
// which are the paper's n-step ones at lambda 1. The program without torch has the parameters
// alone.
#include <sstream>

#include "rl/algorithms/registry.h"
#include "rl/algorithms/value_targets.h"
#ifdef SAMARA_AGENTS
#include "rl/learner/actor_critic.h"
#endif

namespace samara {
namespace {

// ---- parameters

class A2cParameters : public AlgorithmConfig {
 public:
  std::unique_ptr<AlgorithmConfig> Clone() const override {
    return std::make_unique<A2cParameters>(*this);
  }
  void Bind(ConfigTable& table) override {
    table.Add("a2c.gamma", &gamma, {0, 1}, "", "discount per agent step");
    table.Add("a2c.lambda", &lambda, {0, 1}, "",
              "lambda of the advantages: 1 = n-step returns, 0 = one-step");
    table.Add("a2c.value_cost", &value_cost, {0, 1e6}, "",
              "weight of half the value's squared error in the loss");
  }
  // The loss has no importance weights: a batch is what the current policy played.
  Status Check(const LearningConfig& config) const override {
    RETURN_IF_ERROR(CheckNoNormalizedValue(config));
    const LearnConfig& learn = config.learn;
    if (learn.deterministic() && learn.lag == 0 && learn.batch == learn.environments)
      return Status::Ok();
    std::ostringstream why;
    why << "run.algorithm=a2c with learn.mode=" << NameOf<LearnMode>(kLearnModeNames, learn.mode)
        << ", learn.lag=" << learn.lag << ", learn.batch=" << learn.batch
        << " is off-policy; expected deterministic, 0, and learn.environments="
        << learn.environments;
    return {Code::kConfig, why.str()};
  }

  double gamma = 0.99;
  double lambda = 1;
  double value_cost = 0.5;
};

#ifdef SAMARA_AGENTS
// ---- loss

using torch::Tensor;

class A2c : public ActorCritic {
 public:
  explicit A2c(const LearningConfig& config)
      : ActorCritic(config.learn), config_(dynamic_cast<const A2cParameters&>(*config.own)) {}

  ShardLoss Loss(const Shard& shard) const override {
    const ActorCriticSteps steps = EvaluateSteps(shard);
    return LossOf(steps, GeneralizedAdvantages(steps, config_.gamma, config_.lambda));
  }
  bool by_hand() const override { return true; }
  ShardLoss LossByHand(const Shard& shard, DensePass& pass) const override {
    DenseSteps dense(shard, pass);
    const ActorCriticSteps& steps = dense.steps();
    const Tensor advantage = GeneralizedAdvantages(steps, config_.gamma, config_.lambda);
    // half the squared error of the value has the slope value - target = -advantage
    const double mean = 1.0 / static_cast<double>(advantage.numel());
    dense.Differentiate(-mean * advantage, -mean * entropy_cost().coefficient().item<double>(),
                        -mean * config_.value_cost * advantage);
    return LossOf(steps, advantage);
  }
  bool averages() const override { return true; }

 private:
  ShardLoss LossOf(const ActorCriticSteps& steps, const Tensor& advantage) const {
    const Tensor target = advantage + steps.value.detach();
    const Tensor policy = -(steps.log_pi * advantage).mean();
    const Tensor value = 0.5 * (target - steps.value).square().mean();
    const Tensor entropy = steps.entropy.mean();
    const auto number = [](const Tensor& x) { return x.item<double>(); };
    return {
        .total = policy + config_.value_cost * value -
                 entropy_cost().coefficient().detach() * entropy + entropy_cost().Loss(entropy),
        .numbers = {{"policy_loss", number(policy), true},
                    {"value_loss", number(value), true},
                    {"entropy", number(entropy), true},
                    {"kl", number((steps.log_mu - steps.log_pi).mean()), true},
                    {"importance_weight", number((steps.log_pi - steps.log_mu).exp().mean()), true},
                    {"explained_variance", ExplainedVariance(target, steps.value), true}}};
  }

  const A2cParameters config_;
};

constexpr MakeAlgorithm* kMakeA2c = NewAlgorithm<A2c>;
#else
constexpr MakeAlgorithm* kMakeA2c = nullptr;
#endif

}  // namespace

LearningAlgorithm A2cRow() {
  return {.name = "a2c",
          .about = "synchronous advantage actor-critic, on-policy",
          .paper = "Mnih et al. 2016",
          .parameters = NewParameters<A2cParameters>,
          .make = kMakeA2c};
}

}  // namespace samara
