// Algorithms behind a torso of convolutions: derivatives by observations, the features of stacks,
// and the gradient of an agent that learns from images.
#include "rl/learner/image_torso.h"

#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "nn/safetensors.h"
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
    algorithm->Initialize(1, Initializer::kGlorot, learned, others);
    others = learned;
    algorithm->Initialize(2, Initializer::kGlorot, others, targets);
    for (size_t i = 0; i < kRows; ++i) weights.push_back(0.5F + static_cast<float>(i % 3) / 2);
    if (algorithm->shape().actions > 0) return;
    for (size_t i = 0; i < kRows; ++i) {
      chosen[i] = static_cast<float>(i % 4);
      steps.steps[i].action = std::span(chosen).subspan(i, 1);
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
  std::vector<float> learned, targets, weights, chosen = std::vector<float>(kRows);
  std::vector<float> by_observation = std::vector<float>(kRows * kInputs);
};

class ByObservationTest : public testing::TestWithParam<const char*> {};

// The values' loss alone counts: a policy's is not among them.
TEST_P(ByObservationTest, AreFiniteDifferencesOfTheValuesLoss) {
  ValueLoss loss(GetParam());
  loss();
  const std::vector<float> by_observation = loss.by_observation;
  EXPECT_GT(*std::ranges::max_element(by_observation), 0.015F);
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
constexpr size_t kPixels = kHeight * kWidth;
constexpr uint32_t kLength = 5;

// Images that an environment may show: gray or coloured, bytes or floats; stacks of two of them.
struct Images {
  const char* name;
  DType dtype;
  int64_t channels;
  std::vector<int64_t> shape() const {
    return channels == 1 ? std::vector<int64_t>{kHeight, kWidth}
                         : std::vector<int64_t>{kHeight, kWidth, channels};
  }
  size_t numbers() const { return kPixels * static_cast<size_t>(channels); }
};
constexpr Images kGray{"gray", DType::kUint8, 1};

AgentSetup ImageSetup(const char* line = "conv 4 3x3/2 relu, conv 6 3x3 tanh, dense 9 relu",
                      const Images& images = kGray) {
  AgentSetup setup = ContinuousSetup(
      "d4pg", {{"d4pg.atoms", "11"}, {"d4pg.value_min", "-2"}, {"d4pg.value_max", "3"}});
  Set(setup.config, {{"network.layers", ('"' + std::string(line) + '"').c_str()}});
  setup.environment.observation = {images.dtype, images.shape()};
  setup.stack = FrameStackRule{.depth = 2};
  return setup;
}

TEST(ImageTorsoTest, SplitsTheNetworkOfImages) {
  AgentSetup setup = ImageSetup();
  const auto torso = ImageTorso::Split(setup).ValueOrThrow();
  ASSERT_NE(torso, nullptr);
  EXPECT_EQ(setup.config.network.text(), "dense 9 relu");
  EXPECT_EQ(setup.environment.observation.shape, (std::vector<int64_t>{3 * 2 * 6}));
  EXPECT_EQ(torso->features(), 3U * 2 * 6);
  EXPECT_FALSE(setup.stack);

  AgentSetup vectors = ContinuousSetup("d4pg");
  EXPECT_EQ(ImageTorso::Split(vectors).ValueOrThrow(), nullptr);
  for (const char* line : {"dense 9 relu", "conv 4 3x3 silu, dense 9 relu", "conv 4 3x3 relu",
                           "residual 4, dense 9 relu", "conv 40 13x13 relu, dense 9 relu"}) {
    AgentSetup wrong = ImageSetup(line);
    EXPECT_EQ(ImageTorso::Split(wrong).status().code(), Code::kConfig) << line;
  }
}

// An unroll of random frames that begins an episode, and its frames as numbers of 0 to 1.
struct RandomUnroll {
  explicit RandomUnroll(const Images& images) {
    const CounterRng rng(4);
    unroll.entries = kLength + 1;
    unroll.headers.resize(kLength + 1);
    for (uint32_t t = 0; t <= kLength; ++t) {
      unroll.headers[t].episode_step = t;
      unroll.headers[t].reward = static_cast<float>(rng.Normal(100'000 + t));
      for (size_t i = 0; i < images.numbers(); ++i) {
        const auto level = static_cast<uint8_t>(rng.UniformInt(t * images.numbers() + i, 256));
        const float number = static_cast<float>(level) / 255;
        numbers.push_back(number);
        const auto bytes = images.dtype == DType::kUint8 ? std::as_bytes(std::span(&level, 1))
                                                         : std::as_bytes(std::span(&number, 1));
        unroll.observations.insert(unroll.observations.end(), bytes.begin(), bytes.end());
      }
      for (size_t d = 0; d < kDimensions; ++d)
        unroll.action_values.push_back(
            static_cast<float>(std::tanh(rng.Normal(200'000 + t * kDimensions + d))));
    }
    unroll.history.resize(unroll.observations.size() / (kLength + 1));
    frames = torch::tensor(numbers).reshape({kLength + 1, kHeight, kWidth, images.channels});
  }
  // [kLength][2 channels][height][width]: the frames before `first`, first + 1, ... (the episode's
  // first one before itself), and these.
  TorchTensor Stacks(int64_t first) const {
    std::vector<TorchTensor> stacks;
    for (int64_t t = first; t < first + kLength; ++t)
      stacks.push_back(torch::cat({frames[std::max<int64_t>(0, t - 1)], frames[t]}, -1));
    return torch::stack(stacks).permute({0, 3, 1, 2});
  }
  Unroll unroll;
  std::vector<float> numbers;
  TorchTensor frames;  // [kLength + 1][height][width][channels]
};

// The features of `stacks`, pixel by pixel.
TorchTensor Features(const Named& torso, const TorchTensor& stacks) {
  const auto conv = [&](const char* name, const TorchTensor& x, int64_t stride) {
    return torch::conv2d(x, torso.at(std::string(name) + "_weight"),
                         torso.at(std::string(name) + "_bias"), stride);
  };
  const TorchTensor x = torch::tanh(conv("conv2", torch::relu(conv("conv1", stacks, 2)), 1));
  return x.permute({0, 2, 3, 1}).flatten(1);
}

// D4PG behind a torso, whose minibatch is all of one unroll. Targets have other parameters.
struct ImageCase {
  explicit ImageCase(const Images& images, bool compress = false)
      : played(images),
        setup(ImageSetup("conv 4 3x3/2 relu, conv 6 3x3 tanh, dense 9 relu", images)) {
    torso = ImageTorso::Split(setup).ValueOrThrow();
    learned.resize(torso->size());
    targets.resize(torso->size());
    torso->blocks().Initialize(3, Initializer::kGlorot, learned);
    torso->blocks().Initialize(4, Initializer::kGlorot, targets);
    seeing = ToTorch(torso->blocks().Tensors(learned), true);
    seeing_target = ToTorch(torso->blocks().Tensors(targets), false);
    replay.emplace(ReplayShape{.capacity = kLength,
                               .length = kLength,
                               .observation_bytes = images.numbers() * SizeOf(images.dtype),
                               .history = 1,
                               .action_values = kDimensions,
                               .compress = compress});
    replay->Add(played.unroll);
    for (uint64_t i = 0; i < kLength; ++i) {
      drawn.push_back(i);
      steps.push_back(replay->At(i, {.steps = 1, .gamma = 0.9}));
    }
  }
  const RandomUnroll played;
  AgentSetup setup;
  std::unique_ptr<const ImageTorso> torso;
  std::vector<float> learned, targets;  // the torso's
  Named seeing, seeing_target;
  std::optional<UnrollReplay> replay;
  std::vector<uint64_t> drawn;
  std::vector<Transition> steps;
};

class ImagesTest : public testing::TestWithParam<Images> {};

// The targets' torso sees what follows, and where that is asked for the learned one, too.
void ExpectFeaturesOfTorchsConvolutions(ImageCase c) {
  MinibatchFeatures features(*c.torso, *c.replay, kLength, /*learned_sees_next=*/true,
                             /*random_shift=*/0);
  features.Replace(*c.replay, c.drawn, c.learned, c.targets, /*statistics=*/{}, CounterRng(1),
                   c.steps);
  ReplayMinibatch minibatch{.step = 0,
                            .steps = c.steps,
                            .weights = {},
                            .learned = {},
                            .targets = {},
                            .noise = CounterRng(1),
                            .errors = {}};
  features.Bind(minibatch);
  const auto compare = [](std::span<const std::byte> row, const TorchTensor& expected) {
    std::vector<float> values(row.size() / sizeof(float));
    std::memcpy(values.data(), row.data(), row.size());
    EXPECT_TRUE(torch::allclose(torch::tensor(values), expected, 1e-4, 1e-5));
  };
  const TorchTensor now = Features(c.seeing, c.played.Stacks(0)).detach(),
                    next = Features(c.seeing_target, c.played.Stacks(1)),
                    next_learned = Features(c.seeing, c.played.Stacks(1)).detach();
  EXPECT_FALSE(torch::allclose(next, next_learned));
  for (uint32_t t = 0; t < kLength; ++t) {
    compare(c.steps[t].observation, now[t]);
    compare(c.steps[t].next_observation, next[t]);
    compare(minibatch.NextLearned(t), next_learned[t]);
  }
}
TEST_P(ImagesTest, FeaturesAreThoseOfTorchsConvolutions) {
  for (const bool compress : {false, true})
    ExpectFeaturesOfTorchsConvolutions(ImageCase(GetParam(), compress));
}

// Means and deviations of a frame; some of the latter count as 0.1.
std::vector<float> Statistics(const Images& images) {
  std::vector<float> statistics(2 * images.numbers());
  for (size_t i = 0; i < statistics.size(); ++i)
    statistics[i] =
        static_cast<float>(CounterRng(6).Uniform(i)) * (i < images.numbers() ? 1.0F : 0.3F);
  return statistics;
}

// Normalizes stacks of two frames by torch, as doc/networks.md has it; without statistics they
// stay.
TorchTensor Normalized(const TorchTensor& stacks, const Images& images,
                       const std::vector<float>& statistics) {
  if (statistics.empty()) return stacks;
  const TorchTensor both = torch::tensor(statistics)
                               .reshape({2, kHeight, kWidth, images.channels})
                               .permute({0, 3, 1, 2})
                               .repeat({1, 2, 1, 1});
  return ((stacks - both[0]) / both[1].clamp_min(0.1)).clamp(-5, 5);
}

// torch pads by repeating the edge and cuts out: random shifts of Kostrikov et al. 2021, 4.1.
void ExpectCutsOfPaddedImages(const Images& images, const std::vector<float>& statistics) {
  constexpr int64_t kShift = 3;
  ImageCase c(images);
  MinibatchFeatures features(*c.torso, *c.replay, kLength, /*learned_sees_next=*/false, kShift);
  const CounterRng shifts(7);
  features.Replace(*c.replay, c.drawn, c.learned, c.targets, statistics, shifts, c.steps);
  const auto padded = [&](int64_t first) {
    return torch::replication_pad2d(Normalized(c.played.Stacks(first), images, statistics),
                                    {kShift, kShift, kShift, kShift});
  };
  const TorchTensor now = padded(0), next = padded(1);
  std::set<std::pair<int64_t, int64_t>> moves;
  for (int64_t t = 0; t < kLength; ++t) {
    const auto cut = [&](const TorchTensor& from, uint64_t index) {
      const auto at = [&](uint64_t i) {  // of 2 kShift, which an image moved there leaves behind
        return 2 * kShift - static_cast<int64_t>(shifts.UniformInt(i, 2 * kShift + 1));
      };
      moves.insert({at(index), at(index + 1)});
      return from.slice(0, t, t + 1)
          .slice(2, at(index), at(index) + kHeight)
          .slice(3, at(index + 1), at(index + 1) + kWidth);
    };
    const auto draws = static_cast<uint64_t>(4 * t);
    const auto compare = [](std::span<const std::byte> row, const TorchTensor& expected) {
      std::vector<float> values(row.size() / sizeof(float));
      std::memcpy(values.data(), row.data(), row.size());
      EXPECT_TRUE(torch::allclose(torch::tensor(values), expected.detach()[0], 1e-4, 1e-5));
    };
    const Transition& step = c.steps[static_cast<size_t>(t)];
    compare(step.observation, Features(c.seeing, cut(now, draws)));
    compare(step.next_observation, Features(c.seeing_target, cut(next, draws + 2)));
  }
  EXPECT_GT(moves.size(), kLength);
}
TEST_P(ImagesTest, MovedImagesAreCutsOfPaddedOnes) { ExpectCutsOfPaddedImages(GetParam(), {}); }
TEST_P(ImagesTest, ImagesAreNormalizedBeforeTheyAreMoved) {
  ExpectCutsOfPaddedImages(GetParam(), Statistics(GetParam()));
}

// The critic's cross-entropy by torch's convolutions, and the gradient of the learned torso, which
// the policy's loss leaves alone.
TEST_P(ImagesTest, TheGradientIsThatOfTheWholeNetwork) {
  ImageCase c(GetParam());
  const auto algorithm = MakeD4pg(c.setup).ValueOrThrow();
  std::vector<float> learned(algorithm->learned().size()), targets(algorithm->targets().size());
  std::vector<float> others = targets;
  algorithm->Initialize(1, Initializer::kGlorot, learned, others);
  algorithm->Initialize(2, Initializer::kGlorot, others, targets);
  MinibatchFeatures features(*c.torso, *c.replay, kLength, /*learned_sees_next=*/false,
                             /*random_shift=*/0);
  features.Replace(*c.replay, c.drawn, c.learned, c.targets, /*statistics=*/{}, CounterRng(1),
                   c.steps);
  std::vector<float> gradient(learned.size()), by_torso(c.torso->size()), errors(kLength);
  const std::vector<float> weights(kLength, 1.0F);
  ReplayMinibatch minibatch{.step = 0,
                            .steps = c.steps,
                            .weights = weights,
                            .learned = learned,
                            .targets = targets,
                            .noise = CounterRng(1),
                            .errors = errors};
  features.Bind(minibatch);
  const auto numbers = algorithm->Gradient(minibatch, *algorithm->MakeScratch(kLength), gradient);
  features.Backward(c.learned, by_torso);

  const Named now = ToTorch(algorithm->learned().Tensors(learned), false),
              target = ToTorch(algorithm->targets().Tensors(targets), false);
  const auto dense = [](const Named& all, const std::string& prefix, const char* head,
                        const TorchTensor& x) {
    const auto layer = [&](const std::string& name, const TorchTensor& in) {
      return torch::linear(in, all.at(prefix + name + "_weight"), all.at(prefix + name + "_bias"));
    };
    return layer(head, torch::relu(layer("fc1", x)));
  };
  TorchTensor action = torch::zeros({kLength, kDimensions}), reward = torch::zeros({kLength});
  for (uint32_t t = 0; t < kLength; ++t) {
    reward[t] = c.played.unroll.headers[t + 1].reward;
    for (uint32_t d = 0; d < kDimensions; ++d)
      action[t][d] = c.played.unroll.action_values[t * kDimensions + d];
  }
  const TorchTensor next = Features(c.seeing_target, c.played.Stacks(1));
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
  const TorchTensor seen = Features(c.seeing, c.played.Stacks(0));
  const TorchTensor logits = dense(now, "critic1_", "value", torch::cat({seen, action}, 1));
  const TorchTensor loss = -(y * torch::log_softmax(logits, 1)).sum(1).mean();
  EXPECT_NEAR(numbers.at("value_loss"), loss.item<double>(), 1e-5);
  loss.backward();
  for (const auto& [name, tensor] : c.torso->blocks().Tensors(by_torso)) {
    const std::vector<float> values = tensor.Floats();
    const TorchTensor found = torch::tensor(values).reshape(tensor.shape);
    EXPECT_GT(found.abs().max().item<double>(), 1e-4) << name;
    EXPECT_TRUE(torch::allclose(found, c.seeing.at(name).grad(), 1e-3, 1e-6)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ImagesTest,
                         testing::Values(kGray, Images{"coloured", DType::kUint8, 3},
                                         Images{"floats", DType::kFloat32, 1}),
                         [](const auto& images) { return std::string(images.param.name); });

// ---- agents: five floats that a random environment gives as an image of 5 x 1

std::map<std::string, Tensor> Parsed(const Agent& agent, const char* file) {
  return ParseSafetensors(agent.Save(Agent::Part::kRun).at(file)).ValueOrThrow().tensors;
}

// Ten steps of the optimizer an update. The torso's targets are copied, or not, when the critics'
// are.
TEST(ImageAgentTest, TheTargetsOfTheTorsoFollowAsTheOthersDo) {
  struct Case {
    const char* algorithm;
    Settings settings;
    bool copied;
  };
  const Case cases[] = {{"d4pg", {{"d4pg.target_every", "10"}}, true},
                        {"d4pg", {{"d4pg.target_every", "1000"}}, false},
                        {"td3", {{"td3.polyak", "0"}, {"td3.delay", "5"}}, true},
                        {"td3", {{"td3.polyak", "0"}, {"td3.delay", "1000"}}, false},
                        {"sac", {{"sac.polyak", "0"}}, true},
                        {"sac", {{"sac.polyak", "1"}}, false}};
  for (const Case& each : cases) {
    ReplayPlay play([&](Settings common) {
      AgentSetup setup = ContinuousSetup(each.algorithm, common);
      Set(setup.config, {{"network.layers", "\"conv 3 1x1 tanh, dense 8 tanh\""},
                         {"replay.alpha", "0.6"},
                         {"optimizer.learning_rate", "0.01"}});
      Set(setup.config, each.settings);
      setup.environment.observation = {DType::kFloat32, {kInputs, 1}};
      setup.stack = FrameStackRule{.depth = 1};
      return setup;
    });
    const auto first = Parsed(play.agent(), "weights.safetensors").at("conv1_weight").Floats();
    for (int update = 0; update < 4; ++update) play.Update();
    const auto learned = Parsed(play.agent(), "weights.safetensors");
    const auto targets = Parsed(play.agent(), "targets.safetensors");
    for (const char* name : {"conv1_weight", "critic1_fc1_weight"}) {
      const auto now = learned.at(name).Floats(), target = targets.at(name).Floats();
      EXPECT_EQ(now == target, each.copied) << each.algorithm << " " << name;
    }
    EXPECT_NE(learned.at("conv1_weight").Floats(), first) << each.algorithm;
    EXPECT_EQ(targets.at("conv1_weight").Floats() == first, !each.copied) << each.algorithm;
  }
}

}  // namespace
}  // namespace samara::image_torso_test
