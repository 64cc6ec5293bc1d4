#include <gtest/gtest.h>

#include <cmath>

#include "rl/algorithms/batch_test_util.h"
#include "rl/algorithms/registry.h"
#include "rl/learner/algorithm.h"

namespace samara::a2c_test {
namespace {

using namespace batch_test;
using torch::Tensor;

LearningConfig Config(double gamma, double lambda) {
  LearningConfig config;
  ChooseAlgorithm(config, "a2c");
  config.learn.mode = LearnMode::kDeterministic;
  config.learn.lag = 0;
  config.learn.batch = config.learn.environments;
  config.learn.entropy_cost = 0.01;
  ConfigTable table;
  Bind(table, config);
  EXPECT_TRUE(table.Set("a2c.gamma", std::to_string(gamma)).ok());
  EXPECT_TRUE(table.Set("a2c.lambda", std::to_string(lambda)).ok());
  EXPECT_TRUE(table.Set("a2c.value_cost", "0.3").ok());
  return config;
}

ShardLoss LossOf(const LearningConfig& config, const LearnerBatch& batch,
                 const AgentNetwork& network) {
  const auto algorithm = FindLearningAlgorithm("a2c")->make(config);
  return algorithm->Loss(
      {batch, ActionDistribution::Categorical(kActions), *network, CounterRng(0)});
}

// A network of zeros: the policy is uniform and every value is 2.
// gamma 0.5, rewards 1, 4, 8 of one stream, which goes on: R = 1 + 0.5 (4 + 0.5 (8 + 0.5 x 2)).
TEST(A2cTest, NStepReturnsByHand) {
  const AgentNetwork network = SmallNetwork();
  {
    const torch::NoGradGuard no_gradient;
    for (auto& item : network->named_parameters())
      item.value().fill_(item.key() == "value_bias" ? 2 : 0);
  }
  const Tensor reward = torch::tensor({1.0F, 4.0F, 8.0F}).unsqueeze(1);
  const Tensor never = torch::zeros({3, 1}, torch::kBool);
  const auto expect = [&](const LearnerBatch& batch, double lambda, std::vector<double> returns) {
    double policy = 0, value = 0;
    for (const double r : returns) {
      policy += std::log(kActions) * (r - 2) / 3;
      value += 0.5 * (r - 2) * (r - 2) / 3;
    }
    const ShardLoss loss = LossOf(Config(0.5, lambda), batch, network);
    EXPECT_NEAR(loss.numbers[0].value, policy, 1e-5);
    EXPECT_NEAR(loss.numbers[1].value, value, 1e-5);
    EXPECT_NEAR(loss.total.item<double>(), policy + 0.3 * value - 0.01 * std::log(kActions), 1e-5);
  };
  expect(RandomBatch(reward, never, never), 1, {5.25, 8.5, 9});
  expect(RandomBatch(reward, never, never), 0, {2, 5, 9});
  Tensor second = never.clone();
  second[1][0] = true;
  expect(RandomBatch(reward, second, never), 1, {3, 4, 9});    // ended: nothing follows
  expect(RandomBatch(reward, never, second), 1, {3.5, 5, 9});  // cut: the final observation's value
}

TEST(A2cTest, TheLossByHandIsTheLoss) {
  ExpectTheLossByHand(*FindLearningAlgorithm("a2c")->make(Config(0.9, 0.7)));
}

// Against the definition A_t = sum over k of (gamma lambda)^k delta_{t+k}, in double, and the
// gradient against finite differences of the loss with the advantages held.
TEST(A2cTest, TheLossAndItsGradientAreThoseOfTheDefinition) {
  constexpr int64_t kT = 6, kB = 4;
  constexpr double kGamma = 0.9, kLambda = 0.7;
  const AgentNetwork network = SmallNetwork();
  torch::manual_seed(9);
  const Tensor end = torch::rand({kT, kB}) < 0.4, kind = torch::rand({kT, kB}) < 0.5;
  const Tensor terminated = end & kind, truncated = end & ~kind;
  ASSERT_TRUE(terminated.any().item<bool>() && truncated.any().item<bool>());
  const LearnerBatch batch = RandomBatch(torch::randn({kT, kB}), terminated, truncated);

  const auto forward = [&](const Tensor& observation) {
    const Tensor zeros = torch::zeros(observation.sizes().slice(0, 2));
    return network->forward({observation, zeros, zeros.to(torch::kInt64), zeros.to(torch::kBool)},
                            torch::zeros({observation.size(1), 0}));
  };
  Tensor advantage = torch::zeros({kT, kB}, torch::kFloat64), target = advantage.clone();
  {
    const torch::NoGradGuard no_gradient;
    const Tensor value = forward(batch.observation).value.to(torch::kFloat64);
    Tensor after = value.slice(0, 1).clone();
    const Tensor finals = forward(batch.final_observation).value[0];
    for (int64_t k = 0; k < finals.numel(); ++k)
      after[batch.final_entry[k].item<int64_t>() - 1][batch.final_unroll[k].item<int64_t>()] =
          finals[k];
    for (int64_t b = 0; b < kB; ++b) {
      for (int64_t t = 0; t < kT; ++t) {
        double sum = 0, factor = 1;
        for (int64_t k = t; k < kT; ++k) {
          const bool ended = terminated[k][b].item<bool>();
          sum += factor *
                 (batch.reward[k + 1][b].item<double>() +
                  (ended ? 0 : kGamma * after[k][b].item<double>()) - value[k][b].item<double>());
          if (ended || truncated[k][b].item<bool>()) break;
          factor *= kGamma * kLambda;
        }
        advantage[t][b] = sum;
        target[t][b] = sum + value[t][b].item<double>();
      }
    }
  }
  const auto total = [&] {
    const auto out = forward(batch.observation.slice(0, 0, kT));
    const Tensor log_p = out.policy.to(torch::kFloat64).log_softmax(-1);
    const Tensor log_pi = log_p.gather(-1, batch.action.slice(0, 0, kT)).squeeze(-1);
    const Tensor entropy = -(log_p.exp() * log_p).sum(-1);
    return (-log_pi * advantage + 0.3 * 0.5 * (target - out.value).square() - 0.01 * entropy)
        .mean();
  };
  const ShardLoss loss = LossOf(Config(kGamma, kLambda), batch, network);
  EXPECT_NEAR(loss.total.item<double>(), total().item<double>(), 1e-5);

  loss.total.backward();
  const torch::NoGradGuard no_gradient;
  for (auto& item : network->named_parameters()) {
    const Tensor flat = item.value().flatten();
    for (const int64_t i : {int64_t{0}, flat.numel() - 1}) {
      constexpr double kStep = 1e-2;
      const double at = flat[i].item<double>();
      flat[i] = at + kStep;
      const double above = total().item<double>();
      flat[i] = at - kStep;
      const double below = total().item<double>();
      flat[i] = at;
      EXPECT_NEAR(item.value().grad().flatten()[i].item<double>(), (above - below) / (2 * kStep),
                  1e-4)
          << item.key() << ' ' << i;
    }
  }
}

TEST(A2cTest, RefusesWhatIsOffPolicy) {
  EXPECT_TRUE(Check(Config(0.9, 1)).ok());
  LearningConfig config = Config(0.9, 1);
  config.learn.lag = 1;
  EXPECT_EQ(Check(config).code(), Code::kConfig);
  config = Config(0.9, 1);
  config.learn.mode = LearnMode::kFree;
  EXPECT_EQ(Check(config).code(), Code::kConfig);
  config = Config(0.9, 1);
  config.learn.environments *= 2;
  EXPECT_EQ(Check(config).code(), Code::kConfig);
}

// Its targets are made inside the loss, as V-trace's are: their moments would stay 0 and 1.
TEST(A2cTest, RefusesNormalizedValues) {
  LearningConfig config = Config(0.9, 1);
  config.network.normalize_value = true;
  EXPECT_EQ(Check(config).message(),
            "network.normalize_value=true: a2c has no targets to normalize values by; expected "
            "false");
  ChooseAlgorithm(config, "vtrace");
  EXPECT_EQ(Check(config).code(), Code::kConfig);
}

}  // namespace
}  // namespace samara::a2c_test
