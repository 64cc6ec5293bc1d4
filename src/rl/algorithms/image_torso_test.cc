// Algorithms behind a torso of convolutions: derivatives by observations, the features of stacks,
// and the gradient of an agent that learns from images.
#include "rl/learner/image_torso.h"

#include "rl/algorithms/d4pg.h"
#include "rl/algorithms/dqn.h"
#include "rl/algorithms/replay_test_util.h"
#include "rl/algorithms/sac.h"
#include "rl/algorithms/td3.h"
#include "rl/learner/minibatch_features.h"

namespace samara::image_torso_test {
namespace {

using namespace replay_test;

constexpr size_t kRows = 6;

AgentSetup SetupOf(const std::string& name) {
  AgentSetup setup = ContinuousSetup(name.substr(0, name.find(' ')).c_str());
  if (name == "dqn" || name == "sac discrete")
    setup.environment.action = {.discrete = true, .n = 4, .low = {}, .high = {}};
  // no kinks, so that differences are derivatives
  Set(setup.config, {{"network.layers", "\"dense 12 tanh, dense 7 tanh\""}});
  if (name == "dqn") Set(setup.config, {{"dqn.dueling", "true"}});
  return setup;
}

std::unique_ptr<ReplayAlgorithm> Made(const std::string& name) {
  const AgentSetup setup = SetupOf(name);
  if (name == "dqn") return MakeDqn(setup).ValueOrThrow();
  if (name == "td3") return MakeTd3(setup).ValueOrThrow();
  if (name == "d4pg") return MakeD4pg(setup).ValueOrThrow();
  return MakeSac(setup).ValueOrThrow();
}

// The loss of the values of random steps, and its derivatives by their observations.
struct ValueLoss {
  explicit ValueLoss(const std::string& name) : algorithm(Made(name)) {
    learned.resize(algorithm->learned().size());
    targets.resize(algorithm->targets().size());
    std::vector<float> others = targets;
    algorithm->Initialize(1, learned, others);
    others = learned;
    algorithm->Initialize(2, others, targets);
    for (size_t i = 0; i < kRows; ++i) weights.push_back(0.5F + static_cast<float>(i % 3) / 2);
    if (algorithm->shape().actions == 0)
      for (size_t i = 0; i < kRows; ++i) {
        chosen.push_back(static_cast<float>(i % 4));
        steps.steps[i].action = {&chosen.front() + i, 1};
      }
  }
  double operator()() {
    std::vector<float> gradient(learned.size()), errors(kRows);
    std::ranges::fill(by_observation, 0.0F);
    const auto numbers = algorithm->Gradient({.step = 1,
                                              .steps = steps.steps,
                                              .weights = weights,
                                              .learned = learned,
                                              .targets = targets,
                                              .noise = CounterRng(9),
                                              .errors = errors,
                                              .next_learned = {},
                                              .by_observation = by_observation},
                                             *algorithm->MakeScratch(kRows), gradient);
    return numbers.contains("value_loss") ? numbers.at("value_loss") : numbers.at("loss");
  }

  const std::unique_ptr<ReplayAlgorithm> algorithm;
  Steps steps{kRows};
  std::vector<float> learned, targets, weights, chosen = {};
  std::vector<float> by_observation = std::vector<float>(kRows * kInputs);
};

class ByObservationTest : public testing::TestWithParam<const char*> {};

// Of the values' loss alone: a policy's is not among them.
TEST_P(ByObservationTest, AreFiniteDifferencesOfTheValuesLoss) {
  ValueLoss loss(GetParam());
  loss.chosen.reserve(kRows);
  loss();
  const std::vector<float> by_observation = loss.by_observation;
  for (size_t i = 0; i < kRows; ++i)
    for (size_t k = 0; k < kInputs; ++k) {
      float& number = loss.steps.numbers[i * Steps::kRow + k];
      const float before = number;
      const auto at = [&](float change) {
        number = before + change;
        return loss();
      };
      const double slope = (at(0.01F) - at(-0.01F)) / 0.02;
      number = before;
      EXPECT_NEAR(by_observation[i * kInputs + k], slope, 2e-3 + 0.02 * std::abs(slope))
          << i << " " << k;
    }
}

INSTANTIATE_TEST_SUITE_P(All, ByObservationTest,
                         testing::Values("dqn", "sac", "sac discrete", "td3", "d4pg"),
                         [](const auto& name) {
                           std::string text = name.param;
                           std::erase(text, ' ');
                           return text;
                         });

// ---- images

constexpr int64_t kHeight = 12, kWidth = 10;
constexpr size_t kFrame = kHeight * kWidth;
constexpr uint32_t kLength = 5;

AgentSetup ImageSetup(const char* line = "conv 4 3x3/2 relu, conv 6 3x3 tanh, dense 9 relu") {
  AgentSetup setup = ContinuousSetup(
      "d4pg", {{"d4pg.atoms", "11"}, {"d4pg.value_min", "-2"}, {"d4pg.value_max", "3"}});
  Set(setup.config, {{"network.layers", ('"' + std::string(line) + '"').c_str()}});
  setup.environment.observation = {DType::kUint8, {kHeight, kWidth}};
  setup.stack = FrameStackRule{.depth = 2};
  return setup;
}

TEST(ImageTorsoTest, SplitsTheNetworkOfImages) {
  AgentSetup setup = ImageSetup();
  const auto torso = ImageTorso::Take(setup).ValueOrThrow();
  ASSERT_NE(torso, nullptr);
  EXPECT_EQ(setup.config.network.text(), "dense 9 relu");
  EXPECT_EQ(setup.environment.observation.shape, (std::vector<int64_t>{3 * 2 * 6}));
  EXPECT_EQ(torso->features(), 3U * 2 * 6);
  EXPECT_FALSE(setup.stack);

  AgentSetup vectors = ContinuousSetup("d4pg");
  EXPECT_EQ(ImageTorso::Take(vectors).ValueOrThrow(), nullptr);
  for (const char* line : {"dense 9 relu", "conv 4 3x3 silu, dense 9 relu", "conv 4 3x3 relu",
                           "residual 4, dense 9 relu", "conv 40 13x13 relu, dense 9 relu"}) {
    AgentSetup wrong = ImageSetup(line);
    EXPECT_EQ(ImageTorso::Take(wrong).status().code(), Code::kConfig) << line;
  }
}

// An unroll of random frames that begins an episode.
Unroll RandomUnroll() {
  Unroll unroll;
  unroll.entries = kLength + 1;
  unroll.headers.resize(kLength + 1);
  unroll.history.resize(kFrame);
  const CounterRng rng(4);
  for (uint32_t t = 0; t <= kLength; ++t) {
    unroll.headers[t].episode_step = t;
    unroll.headers[t].reward = static_cast<float>(rng.Normal(100'000 + t));
    for (size_t i = 0; i < kFrame; ++i)
      unroll.observations.push_back(static_cast<std::byte>(rng.UniformInt(t * kFrame + i, 256)));
    for (size_t d = 0; d < kDimensions; ++d)
      unroll.action_values.push_back(
          static_cast<float>(std::tanh(rng.Normal(200'000 + t * kDimensions + d))));
  }
  return unroll;
}

// [rows][depth][height][width] in 0 to 1, of an entry's frame and the one before (itself at first).
TorchTensor Stacks(const Unroll& unroll, uint32_t first) {
  TorchTensor stacks = torch::zeros({kLength, 2, kHeight, kWidth});
  for (uint32_t t = 0; t < kLength; ++t)
    for (uint32_t plane = 0; plane < 2; ++plane) {
      const uint32_t entry = std::max(1U, t + first + plane) - 1;
      for (int64_t i = 0; i < static_cast<int64_t>(kFrame); ++i)
        stacks[t][plane][i / kWidth][i % kWidth] =
            std::to_integer<int>(unroll.observations[entry * kFrame + static_cast<size_t>(i)]) /
            255.0F;
    }
  return stacks;
}

// The features of `stacks`, pixel by pixel.
TorchTensor Features(const Named& torso, const TorchTensor& stacks) {
  const auto conv = [&](const char* name, const TorchTensor& x, int64_t stride) {
    return torch::conv2d(x, torso.at(std::string(name) + "_weight"),
                         torso.at(std::string(name) + "_bias"), stride);
  };
  const TorchTensor x = torch::tanh(conv("conv2", torch::relu(conv("conv1", stacks, 2)), 1));
  return x.permute({0, 2, 3, 1}).flatten(1);
}

// The critic's cross-entropy by torch's convolutions, and the gradient of the learned torso, which
// the policy's loss leaves alone; what follows is seen by the targets' torso.
TEST(ImageTorsoTest, TheGradientIsThatOfTheWholeNetwork) {
  AgentSetup setup = ImageSetup();
  const auto torso = ImageTorso::Take(setup).ValueOrThrow();
  const auto algorithm = MakeD4pg(setup).ValueOrThrow();
  std::vector<float> learned(algorithm->learned().size()), targets(algorithm->targets().size());
  std::vector<float> others = targets, torso_learned(torso->size()), torso_targets(torso->size());
  algorithm->Initialize(1, learned, others);
  algorithm->Initialize(2, others, targets);
  torso->blocks().Initialize(3, torso_learned);
  torso->blocks().Initialize(4, torso_targets);

  const Unroll unroll = RandomUnroll();
  UnrollReplay replay({.capacity = kLength,
                       .length = kLength,
                       .observation_bytes = kFrame,
                       .history = 1,
                       .action_values = kDimensions});
  replay.Add(unroll);
  std::vector<uint64_t> drawn(kLength);
  std::vector<Transition> steps;
  for (uint64_t i = 0; i < kLength; ++i) {
    drawn[i] = i;
    steps.push_back(replay.At(i, {.steps = 1, .gamma = 0.9}));
  }
  MinibatchFeatures features(*torso, kLength, /*learned_sees_next=*/false);
  features.Replace(replay, drawn, torso_learned, torso_targets, steps);
  std::vector<float> gradient(learned.size()), by_torso(torso->size()), errors(kLength);
  const std::vector<float> weights(kLength, 1.0F);
  ReplayMinibatch minibatch{.step = 0,
                            .steps = steps,
                            .weights = weights,
                            .learned = learned,
                            .targets = targets,
                            .noise = CounterRng(1),
                            .errors = errors};
  features.Give(minibatch);
  const auto numbers = algorithm->Gradient(minibatch, *algorithm->MakeScratch(kLength), gradient);
  features.Backward(torso_learned, by_torso);

  const Named now = ToTorch(algorithm->learned().Tensors(learned), false),
              target = ToTorch(algorithm->targets().Tensors(targets), false),
              seeing = ToTorch(torso->blocks().Tensors(torso_learned), true),
              seeing_target = ToTorch(torso->blocks().Tensors(torso_targets), false);
  const auto dense = [](const Named& all, const std::string& prefix, const char* head,
                        const TorchTensor& x) {
    const auto layer = [&](const std::string& name, const TorchTensor& in) {
      return torch::linear(in, all.at(prefix + name + "_weight"), all.at(prefix + name + "_bias"));
    };
    return layer(head, torch::relu(layer("fc1", x)));
  };
  TorchTensor action = torch::zeros({kLength, kDimensions}), reward = torch::zeros({kLength});
  for (uint32_t t = 0; t < kLength; ++t) {
    reward[t] = unroll.headers[t + 1].reward;
    for (uint32_t d = 0; d < kDimensions; ++d)
      action[t][d] = unroll.action_values[t * kDimensions + d];
  }
  const TorchTensor next = Features(seeing_target, Stacks(unroll, 1));
  const TorchTensor z =
      torch::softmax(dense(target, "critic1_", "value",
                           torch::cat({next, torch::tanh(dense(target, "", "policy", next))}, 1)),
                     1);
  const TorchTensor atoms = torch::linspace(-2, 3, 11);
  const TorchTensor moved = (reward.unsqueeze(1) + 0.9 * atoms).clamp(-2, 3);
  const TorchTensor y =
      ((1 - (moved.unsqueeze(1) - atoms.reshape({1, 11, 1})).abs() / 0.5).clamp_min(0) *
       z.unsqueeze(1))
          .sum(2);
  const TorchTensor logits =
      dense(now, "critic1_", "value", torch::cat({Features(seeing, Stacks(unroll, 0)), action}, 1));
  const TorchTensor loss = -(y * torch::log_softmax(logits, 1)).sum(1).mean();
  EXPECT_NEAR(numbers.at("value_loss"), loss.item<double>(), 1e-5);
  loss.backward();
  for (const auto& [name, tensor] : torso->blocks().Tensors(by_torso)) {
    const std::vector<float> values = tensor.Floats();
    const TorchTensor found = torch::tensor(values).reshape(tensor.shape);
    EXPECT_GT(found.abs().max().item<double>(), 1e-4) << name;
    EXPECT_TRUE(torch::allclose(found, seeing.at(name).grad(), 1e-3, 1e-6)) << name;
  }
}

}  // namespace
}  // namespace samara::image_torso_test
