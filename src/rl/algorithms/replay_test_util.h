// Shared by tests of algorithms that learn continuous actions from a replay: a setup, random
// steps, the same network in torch, and an agent that is fed with what a random environment gave.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/torch/torch.h"
#include "rl/algorithms/registry.h"
#include "rl/learner/replay_algorithm.h"

namespace samara::replay_test {

using TorchTensor = torch::Tensor;
using Named = std::map<std::string, TorchTensor>;
using Settings = std::initializer_list<std::pair<const char*, const char*>>;

constexpr size_t kInputs = 5, kDimensions = 3;

inline void Set(LearningConfig& config, Settings settings) {
  ConfigTable table;
  Bind(table, config);
  for (const auto& [key, value] : settings) EXPECT_TRUE(table.Set(key, value).ok()) << key;
}

inline AgentSetup ContinuousSetup(const char* algorithm, Settings settings = {}) {
  AgentSetup setup;
  ChooseAlgorithm(setup.config, algorithm);
  setup.environment.observation = {DType::kFloat32, {kInputs}};
  setup.environment.action = {.discrete = false,
                              .n = kDimensions,
                              .low = std::vector<float>(kDimensions, -1),
                              .high = std::vector<float>(kDimensions, 1)};
  Set(setup.config, {{"network.layers", "\"dense 12 tanh, dense 7 relu\""}});
  Set(setup.config, settings);
  return setup;
}

// An algorithm without networks, whose targets stay and which does not act: what a fake builds on.
class StillAlgorithm : public ReplayAlgorithm {
 public:
  const ParameterBlocks& learned() const override { return learned_; }
  const ParameterBlocks& targets() const override { return targets_; }
  std::span<const float> Followed(std::span<const float>) const override { return {}; }
  double polyak(uint64_t) const override { return 1; }
  std::unique_ptr<ReplayScratch> MakeScratch(size_t) const override {
    return std::make_unique<ReplayScratch>();
  }
  ModelShape shape() const override {
    return {.observation_bytes = kInputs * sizeof(float),
            .actions = kDimensions,
            .action_values = kDimensions,
            .values = 0};
  }
  void Act(std::span<const float>, ReplayScratch&, InferenceBatch&) const override {}

 protected:
  ParameterBlocks learned_;

 private:
  ParameterBlocks targets_;
};

// Random steps and what they are views of.
struct Steps {
  explicit Steps(size_t n) : numbers(n * kRow) {
    for (size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = static_cast<float>(CounterRng(3).Normal(i));
    for (size_t i = 0; i < n; ++i) {
      const auto bytes = [&](size_t at) {
        return std::as_bytes(std::span(numbers).subspan(i * kRow + at, kInputs));
      };
      steps.push_back({.observation = bytes(0),
                       .action = std::span(numbers).subspan(i * kRow + 2 * kInputs, kDimensions),
                       .reward = numbers[i * kRow + 2 * kInputs + kDimensions],
                       .next_observation = bytes(kInputs),
                       .discount = i % 4 == 1 ? 0 : 0.9F});
    }
  }
  // [n][size] of the numbers from `at` on
  TorchTensor Columns(size_t at, size_t size) {
    return torch::from_blob(numbers.data(),
                            {static_cast<int64_t>(steps.size()), static_cast<int64_t>(kRow)})
        .slice(1, static_cast<int64_t>(at), static_cast<int64_t>(at + size))
        .clone();
  }
  static constexpr size_t kRow = 2 * kInputs + kDimensions + 1;
  std::vector<float> numbers;
  std::vector<Transition> steps;
};

inline Named ToTorch(const std::map<std::string, Tensor>& tensors, bool gradient) {
  Named named;
  for (const auto& [name, tensor] : tensors) {
    const std::vector<float> values = tensor.Floats();
    named[name] = torch::tensor(values).reshape(tensor.shape).set_requires_grad(gradient);
  }
  return named;
}

// A perceptron of ContinuousSetup.
inline TorchTensor Network(const Named& all, const std::string& prefix, const std::string& head,
                           TorchTensor x) {
  const auto dense = [&](const std::string& layer, const TorchTensor& in) {
    return torch::linear(in, all.at(prefix + layer + "_weight"), all.at(prefix + layer + "_bias"));
  };
  x = torch::tanh(dense("fc1", x));
  x = torch::relu(dense("fc2", x));
  return dense(head, x);
}

// One gradient of an algorithm at random parameters, whose targets are others, and what torch needs
// for the same.
struct GradientCase {
  GradientCase(std::unique_ptr<ReplayAlgorithm> of, size_t rows, uint64_t step)
      : algorithm(std::move(of)),
        steps(rows),
        learned(algorithm->learned().size()),
        targets(algorithm->targets().size()),
        gradient(learned.size(), 99.0F),  // what is there is no part of the result
        weights(rows),
        errors(rows) {
    std::vector<float> others = targets;
    algorithm->Initialize(1, Initializer::kGlorot, learned, others);
    algorithm->Initialize(2, Initializer::kGlorot, others, targets);
    for (size_t i = 0; i < rows; ++i) {
      weights[i] = 0.25F + static_cast<float>(i % 3) / 2;
      // no, one, two or three steps of discount
      const float gammas[] = {0, 0.9F, 0.81F, 0.729F};
      steps.steps[i].discount = gammas[i % 4];
    }
    numbers = algorithm->Gradient({.step = step,
                                   .steps = steps.steps,
                                   .weights = weights,
                                   .learned = learned,
                                   .targets = targets,
                                   .noise = noise,
                                   .errors = errors},
                                  *algorithm->MakeScratch(rows), gradient);
    now = ToTorch(algorithm->learned().Tensors(learned), true);
    for (const auto& [name, tensor] : now) fixed[name] = tensor.detach();
    target = ToTorch(algorithm->targets().Tensors(targets), false);
    const auto size = static_cast<int64_t>(rows);
    discount = torch::zeros({size});
    for (int64_t i = 0; i < size; ++i) discount[i] = steps.steps[static_cast<size_t>(i)].discount;
    observation = steps.Columns(0, kInputs), next = steps.Columns(kInputs, kInputs);
    action = steps.Columns(2 * kInputs, kDimensions);
    reward = steps.Columns(2 * kInputs + kDimensions, 1).squeeze(1);
    weight = torch::tensor(weights);
  }
  // Draws number 0 to rows * kDimensions - 1.
  TorchTensor Normals() const {
    std::vector<float> values(weights.size() * kDimensions);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(noise.Normal(i));
    return torch::tensor(values).reshape({-1, static_cast<int64_t>(kDimensions)});
  }
  // The gradients of `now`, zero where there is none.
  void ExpectGradients() const {
    for (const auto& [name, tensor] : algorithm->learned().Tensors(gradient)) {
      const TorchTensor mine = torch::tensor(tensor.Floats()).reshape(tensor.shape);
      const TorchTensor& grad = now.at(name).grad();
      const TorchTensor expected = grad.defined() ? grad : torch::zeros_like(mine);
      EXPECT_TRUE(torch::allclose(mine, expected, 1e-4, 1e-6))
          << name << " " << (mine - expected).abs().max().item<double>();
    }
  }

  std::unique_ptr<ReplayAlgorithm> algorithm;
  const CounterRng noise{9};
  Steps steps;
  std::vector<float> learned, targets, gradient, weights, errors;
  std::map<std::string, double> numbers;
  Named now, fixed, target;  // `fixed`: now, without gradients
  TorchTensor observation, next, action, reward, discount, weight;
};

constexpr uint32_t kSlots = 4, kUnroll = 5;

// Plays unrolls with a random environment and feeds them to an agent, of make(common settings).
class ReplayPlay {
 public:
  template <typename MakeSetup>
  explicit ReplayPlay(const MakeSetup& make)
      : ReplayPlay(make, [](const AgentSetup& setup) { return MakeAgent(setup).ValueOrThrow(); }) {}
  // `agent`(setup): instead of that of the setup's algorithm.
  template <typename MakeSetup, typename MakeIt>
  ReplayPlay(const MakeSetup& make, const MakeIt& agent)
      : store_({.observation_bytes = kInputs * 4, .action_values = kDimensions, .values = 0},
               {.slots = kSlots, .length = kUnroll, .buffers = 3 * kSlots}) {
    AgentSetup setup = make(Settings{{"learn.environments", "4"},
                                     {"learn.unroll", "5"},
                                     {"learn.batch", "4"},
                                     {"replay.start", "40"},
                                     {"replay.batch", "16"},
                                     {"replay.ratio", "8"},
                                     {"replay.capacity", "100"}});
    setup.slots = setup.rows_max = kSlots;
    agent_ = agent(setup);
  }
  Agent& agent() { return *agent_; }

  UpdateReport Update() {
    const uint32_t steps = drawn_ == 0 ? kUnroll + 1 : kUnroll;
    for (uint32_t t = 0; t < steps; ++t, ++drawn_) Step();
    std::vector<UnrollStore::Loan> unrolls = store_.Take(kSlots);
    EXPECT_EQ(unrolls.size(), kSlots);
    return agent_->Update(unrolls, 0).ValueOrThrow();
  }
  uint64_t drawn() const { return drawn_; }
  void SkipTo(uint64_t drawn, ReplayPlay& other) {
    drawn_ = drawn;
    for (uint32_t slot = 0; slot < kSlots; ++slot)
      ASSERT_TRUE(store_.Restore(slot, other.store_.Save(slot)).ok());
  }

 private:
  void Step() {
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      ASSERT_TRUE(store_.Reserve(slot));
      const CounterRng rng(DeriveKey(7, Purpose::kEnvironmentReset, drawn_, slot));
      std::array<float, kInputs> observation;
      for (size_t i = 0; i < kInputs; ++i) observation[i] = static_cast<float>(rng.Normal(i));
      std::array<float, kDimensions> action;
      for (size_t i = 0; i < kDimensions; ++i) action[i] = static_cast<float>(rng.Normal(20 + i));
      EntryHeader header;
      header.reward = static_cast<float>(rng.Normal(99));
      header.episode_step = static_cast<uint32_t>(drawn_ % 9);
      header.terminated = drawn_ > 0 && drawn_ % 9 == 0;
      store_.Append(slot, {.header = header,
                           .observation = std::as_bytes(std::span(observation)),
                           .final_observation = {},
                           .action_values = action,
                           .behaviour = {},
                           .values = {},
                           .state = {},
                           .history = {}});
    }
  }

  UnrollStore store_;
  std::unique_ptr<Agent> agent_;
  uint64_t drawn_ = 0;
};

}  // namespace samara::replay_test
