#include "rl/algorithms/d4pg.h"

#include "rl/algorithms/replay_test_util.h"
#include "rl/learner/return_atoms.h"

namespace samara::d4pg_test {
namespace {

using namespace replay_test;

AgentSetup D4pgSetup(Settings settings = {}) {
  AgentSetup setup = ContinuousSetup(
      "d4pg", {{"d4pg.atoms", "11"}, {"d4pg.value_min", "-2"}, {"d4pg.value_max", "3"}});
  Set(setup.config, settings);
  return setup;
}

// Atoms -1, 0, 1. Rewards of 0.25 and half of each atom: -0.25, 0.25, 0.75.
TEST(ReturnAtomsTest, ProjectsACaseComputedByHand) {
  const ReturnAtoms atoms(-1, 1, 3);
  std::vector<float> projected(3, 5.0F);
  const std::vector<float> probability = {0.5F, 0.25F, 0.25F};
  atoms.Project(0.25F, 0.5F, probability, projected);
  EXPECT_EQ(projected, (std::vector<float>{0.125F, 0.625F, 0.25F}));
  atoms.Project(7, 0.5F, probability, projected);  // beyond the last
  EXPECT_EQ(projected, (std::vector<float>{0, 0, 1}));
  // an episode that is over: the reward alone, whatever is said to follow
  atoms.Project(-0.25F, 0, std::vector<float>(3, NAN), projected);
  EXPECT_EQ(projected, (std::vector<float>{0.25F, 0.75F, 0}));
  EXPECT_DOUBLE_EQ(atoms.Mean(probability), -0.25);
}

// Each atom receives by the triangular kernel around it (Bellemare et al. 2017, equation 7).
TEST(ReturnAtomsTest, ProjectsLikeTheEquation) {
  const CounterRng rng(4);
  for (uint64_t n = 0; n < 50; ++n) {
    const size_t count = 2 + rng.UniformInt(1000 + n, 60);
    const double lowest = 10 * rng.Normal(2000 + n), width = 0.5 + 20 * rng.Uniform(3000 + n);
    const ReturnAtoms atoms(lowest, lowest + width, count);
    const double step = width / static_cast<double>(count - 1);
    std::vector<float> probability(count), projected(count);
    float sum = 0;
    for (size_t k = 0; k < count; ++k)
      sum += probability[k] = static_cast<float>(rng.Uniform(100 * n + k));
    for (float& p : probability) p /= sum;
    const auto reward = static_cast<float>(5 * rng.Normal(4000 + n));
    const float discount = n % 5 == 0 ? 1 : 0.9F;
    atoms.Project(reward, discount, probability, projected);
    for (size_t i = 0; i < count; ++i) {
      double expected = 0;
      for (size_t j = 0; j < count; ++j) {
        const double moved =
            reward + static_cast<double>(discount) * (lowest + step * static_cast<double>(j));
        const double clipped = std::min(std::max(moved, lowest), lowest + width);
        const double off = std::abs(clipped - (lowest + step * static_cast<double>(i))) / step;
        expected += std::max(0.0, 1 - off) * probability[j];
      }
      EXPECT_NEAR(projected[i], expected, 2e-6);
    }
  }
}

// Logits of the critic.
TorchTensor Logits(const Named& all, const TorchTensor& x, const TorchTensor& action) {
  return Network(all, "critic1_", "value", torch::cat({x, action}, 1));
}

constexpr int64_t kAtoms = 11;

// The cross-entropy of each row with the projected distribution, from -2 to 3.
TorchTensor CrossEntropies(const Named& now, const Named& target, const TorchTensor& x,
                           const TorchTensor& action, const TorchTensor& reward,
                           const TorchTensor& discount, const TorchTensor& next) {
  const TorchTensor atoms = torch::linspace(-2, 3, kAtoms);
  const TorchTensor z =
      torch::softmax(Logits(target, next, torch::tanh(Network(target, "", "policy", next))), 1);
  const TorchTensor moved =
      (reward.unsqueeze(1) + discount.unsqueeze(1) * atoms.unsqueeze(0)).clamp(-2, 3);
  // [rows][onto][from]
  const TorchTensor kernel =
      (1 - (moved.unsqueeze(1) - atoms.reshape({1, kAtoms, 1})).abs() / 0.5).clamp_min(0);
  const TorchTensor y = (kernel * z.unsqueeze(1)).sum(2);
  return -(y * torch::log_softmax(Logits(now, x, action), 1)).sum(1);
}

// Barth-Maron et al. 2018, algorithm 1, written with torch: the cross-entropy with the projected
// distribution, and a policy that climbs the mean, whose derivative by the action is clipped.
TEST(D4pgTest, TheGradientIsThatOfThePapersLoss) {
  constexpr size_t kRows = 24;
  for (const double norm : {0.0, 0.02, 1000.0}) {
    GradientCase c(MakeD4pg(D4pgSetup({{"d4pg.action_gradient", std::to_string(norm).c_str()}}))
                       .ValueOrThrow(),
                   kRows, 5);
    const TorchTensor atoms = torch::linspace(-2, 3, kAtoms);
    const TorchTensor each =
        CrossEntropies(c.now, c.target, c.observation, c.action, c.reward, c.discount, c.next);
    EXPECT_TRUE(torch::allclose(torch::tensor(c.errors), each.detach(), 1e-4, 1e-5));
    const TorchTensor critic_loss = (c.weight * each).mean();
    EXPECT_NEAR(c.numbers.at("value_loss"), critic_loss.item<double>(), 1e-5);

    const TorchTensor action = torch::tanh(Network(c.now, "", "policy", c.observation));
    const TorchTensor leaf = action.detach().requires_grad_(true);
    const TorchTensor value =
        (torch::softmax(Logits(c.fixed, c.observation, leaf), 1) * atoms).sum(1);
    EXPECT_NEAR(c.numbers.at("policy_loss"), -value.mean().item<double>(), 1e-5);
    TorchTensor by_action = torch::autograd::grad({value.sum()}, {leaf})[0];
    if (norm > 0) {
      const TorchTensor norms = by_action.norm(2, 1, true);
      EXPECT_EQ(norms.max().item<double>() > norm, norm < 1) << "something is clipped, or nothing";
      by_action = by_action * (norm / norms).clamp_max(1);
    }
    (critic_loss - (by_action * action).sum(1).mean()).backward();
    c.ExpectGradients();
  }
}

// Five steps of an unroll: the second ends its episode, the fourth is the last that the clock
// allows, the fifth the last of the unroll. Returns are of three steps.
TEST(D4pgTest, TargetsEndWithTheEpisodeOrTheUnroll) {
  constexpr size_t kSteps = 5;
  const auto algorithm =
      MakeD4pg(D4pgSetup({{"d4pg.steps", "3"}, {"d4pg.gamma", "0.9"}})).ValueOrThrow();
  std::vector<float> learned(algorithm->learned().size()), targets(learned.size()), other(targets);
  algorithm->Initialize(1, Initializer::kGlorot, learned, other);
  algorithm->Initialize(2, Initializer::kGlorot, other, targets);
  torch::manual_seed(3);
  const TorchTensor x = torch::randn({kSteps + 1, kInputs}), last = torch::randn({1, kInputs}),
                    action = torch::rand({kSteps, kDimensions}) * 2 - 1;
  const auto bytes = [](const TorchTensor& all) {
    const auto view = std::as_bytes(std::span(all.data_ptr<float>(), all.numel()));
    return std::vector<std::byte>(view.begin(), view.end());
  };
  Unroll unroll;
  unroll.entries = kSteps + 1;
  unroll.headers.resize(kSteps + 1);
  unroll.observations = bytes(x);
  unroll.action_values.assign(action.data_ptr<float>(), action.data_ptr<float>() + action.numel());
  unroll.action_values.resize((kSteps + 1) * kDimensions);
  const float rewards[] = {0.5F, -1, 0.25F, 0.75F, -0.5F};
  for (size_t t = 0; t < kSteps; ++t) unroll.headers[t + 1].reward = rewards[t];
  unroll.headers[2].terminated = unroll.headers[4].truncated = true;
  unroll.finals.push_back({4, bytes(last)});
  UnrollReplay replay({.capacity = kSteps,
                       .length = kSteps,
                       .observation_bytes = kInputs * sizeof(float),
                       .action_values = kDimensions});
  replay.Add(unroll);
  std::vector<Transition> steps;
  for (uint64_t t = 0; t < kSteps; ++t) steps.push_back(replay.At(t, algorithm->returns()));
  std::vector<float> gradient(learned.size()), weights(kSteps, 1.0F), errors(kSteps);
  algorithm->Gradient({.step = 0,
                       .steps = steps,
                       .weights = weights,
                       .learned = learned,
                       .targets = targets,
                       .noise = CounterRng(0),
                       .errors = errors},
                      *algorithm->MakeScratch(kSteps), gradient);

  // by hand: rewards, what their discount leaves to the value, and of which observation it is
  const TorchTensor reward =
      torch::tensor({0.5 - 0.9, -1.0, 0.25 + 0.9 * 0.75, 0.75, -0.5}).to(torch::kFloat32);
  const TorchTensor discount = torch::tensor({0.0, 0.0, 0.81, 0.9, 0.9}).to(torch::kFloat32);
  const TorchTensor next = torch::cat({last, last, last, last, x.slice(0, kSteps)});
  const Named now = ToTorch(algorithm->learned().Tensors(learned), false),
              target = ToTorch(algorithm->targets().Tensors(targets), false);
  const TorchTensor expected =
      CrossEntropies(now, target, x.slice(0, 0, kSteps), action, reward, discount, next);
  EXPECT_TRUE(torch::allclose(torch::tensor(errors), expected, 1e-4, 1e-5));
}

TEST(D4pgTest, TargetsAreCopiedEverySoManySteps) {
  const auto algorithm = MakeD4pg(D4pgSetup({{"d4pg.target_every", "3"}})).ValueOrThrow();
  std::vector<float> learned(algorithm->learned().size()), targets(algorithm->targets().size());
  algorithm->Initialize(1, Initializer::kGlorot, learned, targets);
  for (uint64_t step = 0; step < 9; ++step) {
    for (float& value : learned) value += 1;
    algorithm->AfterStep(step, learned, targets);
    EXPECT_EQ(learned == targets, step % 3 == 2) << step;
  }
}

TEST(D4pgTest, HasThePapersDefaults) {
  const auto algorithm = MakeD4pg(ContinuousSetup("d4pg")).ValueOrThrow();
  EXPECT_EQ(algorithm->returns().steps, 5);
  EXPECT_EQ(algorithm->returns().gamma, 0.99);
  for (const ParameterGroup& group : algorithm->groups()) {
    EXPECT_EQ(group.every, 1) << group.name;
    EXPECT_EQ(group.rate, 1) << group.name;
  }
  EXPECT_TRUE(algorithm->explores());
}

TEST(D4pgTest, RefusesWhatItHasNoUseFor) {
  EXPECT_NE(MakeAgent(D4pgSetup({{"d4pg.value_min", "3"}}))
                .status()
                .message()
                .find("expected it below d4pg.value_max"),
            std::string::npos);
}

}  // namespace
}  // namespace samara::d4pg_test
