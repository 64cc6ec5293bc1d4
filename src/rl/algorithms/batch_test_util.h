// A network and batches for the tests of losses.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "nn/torch/agent_network.h"
#include "rl/algorithms/registry.h"
#include "rl/learner/algorithm.h"
#include "rl/learner/learner_batch.h"

namespace samara::batch_test {

constexpr int64_t kActions = 3, kInputs = 2;

using Settings = std::vector<std::pair<const char*, const char*>>;
inline LearningConfig ConfigOf(const char* algorithm, const Settings& settings) {
  LearningConfig config;
  ChooseAlgorithm(config, algorithm);
  config.learn.entropy_cost = 0.01;
  ConfigTable table;
  Bind(table, config);
  for (const auto& [key, value] : settings) EXPECT_TRUE(table.Set(key, value).ok()) << key;
  return config;
}

inline AgentNetwork SmallNetwork(bool normalize_value = false, int64_t outputs = kActions) {
  torch::manual_seed(5);
  return AgentNetworkImpl::Make({.torso = "mlp-4-tanh",
                                 .height = 1,
                                 .width = 1,
                                 .channels = kInputs,
                                 .outputs = outputs,
                                 .normalize_value = normalize_value})
      .ValueOrThrow();
}

// T steps of B streams, and what follows the last of them; final observations where truncated.
inline LearnerBatch RandomBatch(const torch::Tensor& reward, const torch::Tensor& terminated,
                                const torch::Tensor& truncated) {
  const int64_t t = reward.size(0), b = reward.size(1);
  const auto behind = [](const torch::Tensor& x) {
    return torch::cat({torch::zeros_like(x.slice(0, 0, 1)), x});
  };
  LearnerBatch batch;
  batch.observation = torch::randn({t + 1, b, 1, 1, kInputs});
  batch.reward = behind(reward);
  batch.terminated = behind(terminated), batch.truncated = behind(truncated);
  batch.first = batch.terminated | batch.truncated;
  batch.previous_action = torch::zeros({t + 1, b}, torch::kInt64);
  batch.action = torch::randint(kActions, {t + 1, b, 1}, torch::kInt64);
  batch.behaviour = torch::zeros({t + 1, b, kActions});
  batch.state = torch::zeros({b, 0});
  const torch::Tensor ends = batch.truncated.nonzero();
  batch.final_entry = ends.select(1, 0).contiguous();
  batch.final_unroll = ends.select(1, 1).contiguous();
  batch.final_observation = torch::randn({1, ends.size(0), 1, 1, kInputs});
  return batch;
}

// Expects a loss without torch's graph, and its derivatives, to be those with it: of discrete and
// of continuous actions, in episodes that end.
inline void ExpectTheLossByHand(const Algorithm& algorithm) {
  torch::manual_seed(3);
  const torch::Tensor end = torch::rand({6, 4}) < 0.3, kind = torch::rand({6, 4}) < 0.5;
  for (const bool continuous : {false, true}) {
    const auto distribution =
        continuous ? ActionDistribution::TanhNormal(2) : ActionDistribution::Categorical(kActions);
    const AgentNetwork network = SmallNetwork(false, distribution.parameters());
    LearnerBatch batch = RandomBatch(torch::randn({6, 4}), end & kind, end & ~kind);
    batch.behaviour = torch::randn({7, 4, distribution.parameters()});
    if (continuous) batch.action = torch::randn({7, 4, 2});
    std::map<std::string, torch::Tensor> by_name;
    for (const auto& parameter : network->named_parameters())
      by_name[parameter.key()] = parameter.value();
    std::vector<torch::Tensor> learned, flat;
    for (const auto& [name, parameter] : by_name) learned.push_back(parameter);

    const Shard shard{batch, distribution, *network, CounterRng(7)};
    const ShardLoss expected = algorithm.Loss(shard);
    for (const torch::Tensor& gradient : torch::autograd::grad({expected.total}, learned))
      flat.push_back(gradient.flatten());
    DensePass pass;
    const ShardLoss loss = algorithm.LossByHand(shard, pass);
    std::vector<float> gradient(static_cast<size_t>(network->parameter_count()));
    pass.Backward(*network, gradient);

    const auto expect_near = [](double value, double right, const std::string& name) {
      EXPECT_NEAR(value, right, 1e-5 * (1 + std::abs(right))) << name;
    };
    expect_near(loss.total.item<double>(), expected.total.item<double>(), "total");
    ASSERT_EQ(loss.numbers.size(), expected.numbers.size());
    for (size_t i = 0; i < loss.numbers.size(); ++i) {
      EXPECT_EQ(loss.numbers[i].name, expected.numbers[i].name);
      expect_near(loss.numbers[i].value, expected.numbers[i].value, loss.numbers[i].name);
    }
    EXPECT_TRUE(torch::allclose(torch::tensor(gradient), torch::cat(flat), 1e-4, 1e-6));
  }
}

}  // namespace samara::batch_test
