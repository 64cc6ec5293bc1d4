#include "rl/algorithms/dqn.h"

#include <gtest/gtest.h>

#include <set>

#include "nn/torch/torch.h"
#include "rl/algorithms/registry.h"

namespace samara::dqn_test {
namespace {

using TorchTensor = torch::Tensor;

constexpr int64_t kWidth = 4, kChoices = 3;

AgentSetup DqnSetup(std::initializer_list<std::pair<const char*, const char*>> settings = {}) {
  AgentSetup setup;
  ChooseAlgorithm(setup.config, "dqn");
  setup.environment.observation = {DType::kFloat32, {kWidth}};
  setup.environment.action = {.discrete = true, .n = kChoices, .low = {}, .high = {}};
  ConfigTable table;
  Bind(table, setup.config);
  std::vector<std::pair<const char*, const char*>> all = {{"network.layers", "\"dense 9 tanh\""}};
  all.insert(all.end(), settings);
  for (const auto& [key, value] : all) EXPECT_TRUE(table.Set(key, value).ok()) << key;
  return setup;
}

std::map<std::string, TorchTensor> AsTorch(const std::map<std::string, Tensor>& tensors) {
  std::map<std::string, TorchTensor> named;
  for (const auto& [name, tensor] : tensors)
    named[name] = torch::tensor(tensor.Floats()).reshape(tensor.shape).set_requires_grad(true);
  return named;
}

TorchTensor Values(const std::map<std::string, TorchTensor>& p, const TorchTensor& x,
                   bool dueling) {
  const TorchTensor out =
      torch::linear(torch::tanh(torch::linear(x, p.at("fc1_weight"), p.at("fc1_bias"))),
                    p.at("value_weight"), p.at("value_bias"));
  if (!dueling) return out;
  const TorchTensor advantages = out.slice(1, 0, kChoices);
  return out.slice(1, kChoices) + advantages - advantages.mean(1, true);
}

// Each switch against the papers' formulas, written with torch.
TEST(DqnTest, TheGradientIsThatOfThePapersLoss) {
  constexpr int64_t kRows = 32;
  for (const char* twice : {"true", "false"})
    for (const char* dueling : {"false", "true"})
      for (const char* huber : {"0", "0.5"}) {
        const auto algorithm = MakeDqn(DqnSetup({{"dqn.double", twice},
                                                 {"dqn.dueling", dueling},
                                                 {"dqn.huber", huber},
                                                 {"dqn.gamma", "0.9"}}))
                                   .ValueOrThrow();
        std::vector<float> learned(algorithm->learned().size()), targets(learned.size()), other;
        algorithm->Initialize(1, Initializer::kGlorot, learned, targets);
        other = learned;
        algorithm->Initialize(2, Initializer::kGlorot, other, targets);
        torch::manual_seed(8);
        const TorchTensor x = torch::randn({kRows, kWidth}), next = torch::randn({kRows, kWidth}),
                          reward = torch::randn({kRows});
        const TorchTensor action = torch::randint(kChoices, {kRows}),
                          ends = torch::rand({kRows}) < 0.25;
        const TorchTensor played = action.to(torch::kFloat32);
        std::vector<Transition> steps;
        for (int64_t i = 0; i < kRows; ++i) {
          const auto row = [i](const TorchTensor& t) {
            return std::as_bytes(std::span(t.data_ptr<float>() + i * kWidth, kWidth));
          };
          steps.push_back({.observation = row(x),
                           .action = {played.data_ptr<float>() + i, 1},
                           .reward = reward[i].item<float>(),
                           .next_observation = row(next),
                           .discount = ends[i].item<bool>() ? 0 : 0.9F});
        }
        std::vector<float> gradient(learned.size()), weights(kRows), errors(kRows);
        for (size_t i = 0; i < weights.size(); ++i)
          weights[i] = 0.25F + static_cast<float>(i % 3) / 2;
        const auto scratch = algorithm->MakeScratch(kRows);
        const auto numbers = algorithm->Gradient({.steps = steps,
                                                  .weights = weights,
                                                  .learned = learned,
                                                  .targets = targets,
                                                  .noise = CounterRng(0),
                                                  .errors = errors},
                                                 *scratch, gradient);

        const auto now = AsTorch(algorithm->learned().Tensors(learned)),
                   target = AsTorch(algorithm->targets().Tensors(targets));
        const bool apart = std::string(dueling) == "true";
        const TorchTensor followed = Values(target, next, apart);
        const TorchTensor best =
            (std::string(twice) == "true" ? Values(now, next, apart) : followed).argmax(1, true);
        const TorchTensor y =
            (reward + 0.9 * ends.logical_not() * followed.gather(1, best).squeeze(1)).detach();
        const TorchTensor q = Values(now, x, apart).gather(1, action.unsqueeze(1)).squeeze(1);
        EXPECT_TRUE(torch::allclose(torch::tensor(errors), (q - y).abs(), 1e-4, 1e-5));
        const TorchTensor each =
            std::string(huber) == "0" ? 0.5 * (q - y).square() : torch::huber_loss(q, y, 0, 0.5);
        const TorchTensor loss = (torch::tensor(weights) * each).mean();
        loss.backward();
        EXPECT_NEAR(numbers.at("loss"), loss.item<double>(), 1e-5);
        EXPECT_NEAR(numbers.at("q_mean"), q.mean().item<double>(), 1e-5);
        for (const auto& [name, tensor] : algorithm->learned().Tensors(gradient)) {
          const TorchTensor mine = torch::tensor(tensor.Floats()).reshape(tensor.shape);
          EXPECT_TRUE(torch::allclose(mine, now.at(name).grad(), 1e-4, 1e-5))
              << name << " double=" << twice << " dueling=" << dueling << " huber=" << huber;
        }
      }
}

// Environments explore at rates from epsilon down to epsilon_last, and not when greedy.
TEST(DqnTest, EveryEnvironmentExploresAtItsOwnRate) {
  AgentSetup setup = DqnSetup(
      {{"learn.environments", "3"}, {"dqn.epsilon", "0.9"}, {"dqn.epsilon_last", "0.009"}});
  setup.slots = setup.rows_max = 3;
  const auto agent = MakeAgent(setup).ValueOrThrow();
  const std::vector<float> observation = {0.1F, -0.4F, 0.3F, 0.2F};
  const auto play = [&](uint32_t slot, uint32_t step, bool greedy) {
    InferenceBatch batch(agent->shape(), 3);
    batch.rows.push_back({.slot = slot,
                          .greedy = greedy,
                          .step = step,
                          .key = 1 + slot,
                          .observation = std::as_bytes(std::span(observation))});
    batch.status.resize(1);
    EXPECT_TRUE(agent->Infer(batch).ok());
    return batch.index[0];
  };
  const int32_t best = play(0, 0, true);
  constexpr uint32_t kSteps = 4000;
  // a third of the random actions is the best one
  for (const auto& [slot, rate] : {std::pair{0u, 0.9}, {1u, 0.09}, {2u, 0.009}}) {
    double others = 0;
    for (uint32_t step = 0; step < kSteps; ++step) others += play(slot, step, false) != best;
    EXPECT_NEAR(others / kSteps, rate * 2 / 3, 0.025 * std::sqrt(rate)) << slot;
  }
  std::set<int32_t> greedy;
  for (uint32_t step = 0; step < 100; ++step) greedy.insert(play(0, step, true));
  EXPECT_EQ(greedy.size(), 1u);
}

TEST(DqnTest, RefusesWhatItHasNoUseFor) {
  AgentSetup setup = DqnSetup();
  setup.environment.action = {.discrete = false, .n = 2, .low = {-1, -1}, .high = {1, 1}};
  EXPECT_NE(MakeAgent(setup).status().message().find("actions are continuous"), std::string::npos);
  EXPECT_NE(MakeAgent(DqnSetup({{"dqn.epsilon", "0.1"}, {"dqn.epsilon_last", "0.2"}}))
                .status()
                .message()
                .find("at most dqn.epsilon"),
            std::string::npos);
}

}  // namespace
}  // namespace samara::dqn_test
