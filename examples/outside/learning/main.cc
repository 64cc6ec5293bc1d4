// A learning algorithm and a network of one's own: REINFORCE with a learned baseline (Williams
// 1992), on the newest unrolls, on two small layers.
//
//   my-policy-gradient train my.toml run.seed=2    resume, report, eval and the rest as with samara
#include "samara/learning.h"
#include "samara/network.h"

namespace {

using namespace samara;

class Parameters : public AlgorithmConfig {
 public:
  double gamma = 0.99;
  double value_cost = 0.1;

  std::unique_ptr<AlgorithmConfig> Clone() const override {
    return std::make_unique<Parameters>(*this);
  }
  void Bind(ConfigTable& table) override {
    table.Add("mine.gamma", &gamma, {0, 1}, "", "discount per agent step");
    table.Add("mine.value_cost", &value_cost, {0, 1e6}, "", "weight of the value's squared error");
  }
  Status Check(const LearningConfig&) const override { return Status::Ok(); }
};

class PolicyGradient : public ActorCritic {
 public:
  explicit PolicyGradient(const LearningConfig& config)
      : ActorCritic(config.learn), config_(dynamic_cast<const Parameters&>(*config.own)) {}

  ShardLoss Loss(const Shard& shard) const override {
    const ActorCriticSteps steps = EvaluateSteps(shard);
    const torch::Tensor advantage = GeneralizedAdvantages(steps, config_.gamma, /*lambda=*/1);
    const torch::Tensor error = advantage + steps.value.detach() - steps.value;
    const torch::Tensor policy = -(steps.log_pi * advantage).mean();
    const torch::Tensor value = error.square().mean();
    return {.total = policy + config_.value_cost * value,
            .numbers = {{"policy_loss", policy.item<double>(), true},
                        {"value_loss", value.item<double>(), true}}};
  }
  bool averages() const override { return true; }

 private:
  const Parameters config_;
};

}  // namespace

int main(int argc, char** argv) {
  ThrowIfError(RegisterNetwork({.name = "my-layers",
                                .about = "two small layers",
                                .layers = "dense 32 tanh, dense 32 tanh",
                                .source = ""}));
  RegisterLearningAlgorithm({.name = "my-policy-gradient",
                             .about = "REINFORCE with a learned baseline",
                             .paper = "Williams 1992",
                             .parameters = NewParameters<Parameters>,
                             .make = NewAlgorithm<PolicyGradient>});
  return RunCommandLine(argc, argv);
}
