#include "rl/algorithms/td3.h"

#include <set>

#include "rl/algorithms/replay_test_util.h"

namespace samara::td3_test {
namespace {

using namespace replay_test;

AgentSetup Td3Setup(Settings settings = {}) { return ContinuousSetup("td3", settings); }

TorchTensor Value(const Named& all, const char* critic, const TorchTensor& x,
                  const TorchTensor& action) {
  return Network(all, critic, "value", torch::cat({x, action}, 1)).squeeze(1);
}

// Fujimoto et al. 2018, algorithm 1, written with torch; the policy's loss in its steps alone.
TEST(Td3Test, TheGradientIsThatOfThePapersLoss) {
  for (const uint64_t step : {6, 7, 8}) {
    const bool policy_learns = step == 8;  // the last of three
    GradientCase c(
        MakeTd3(
            Td3Setup({{"td3.delay", "3"}, {"td3.smoothing", "0.5"}, {"td3.smoothing_clip", "0.4"}}))
            .ValueOrThrow(),
        24, step);
    const TorchTensor noise = (0.5 * c.Normals()).clamp(-0.4, 0.4);
    const TorchTensor follows =
        (torch::tanh(Network(c.target, "", "policy", c.next)) + noise).clamp(-1, 1);
    const TorchTensor y =
        c.reward + c.discount * torch::minimum(Value(c.target, "critic1_", c.next, follows),
                                               Value(c.target, "critic2_", c.next, follows));
    TorchTensor critic_loss = torch::zeros({}), error = torch::zeros_like(y);
    for (const char* critic : {"critic1_", "critic2_"}) {
      const TorchTensor off = Value(c.now, critic, c.observation, c.action) - y;
      critic_loss = critic_loss + (c.weight * off.square()).mean();
      error = error + off.detach().abs() / 2;
    }
    EXPECT_TRUE(torch::allclose(torch::tensor(c.errors), error, 1e-4, 1e-5));
    EXPECT_NEAR(c.numbers.at("value_loss"), critic_loss.item<double>(), 1e-4);
    const TorchTensor policy_loss = -Value(c.fixed, "critic1_", c.observation,
                                           torch::tanh(Network(c.now, "", "policy", c.observation)))
                                         .mean();
    EXPECT_NEAR(c.numbers.at("policy_loss"), policy_learns ? 3 * policy_loss.item<double>() : 0,
                1e-5);
    (policy_learns ? critic_loss + policy_loss : critic_loss).backward();
    c.ExpectGradients();
  }
}

// With one critic, no delay and no smoothing it is DDPG (Lillicrap et al. 2016).
TEST(Td3Test, WithoutItsThreeAdditionsItIsDdpg) {
  GradientCase c(
      MakeTd3(Td3Setup({{"td3.critics", "1"}, {"td3.delay", "1"}, {"td3.smoothing", "0"}}))
          .ValueOrThrow(),
      16, 0);
  const TorchTensor y =
      c.reward + c.discount * Value(c.target, "critic1_", c.next,
                                    torch::tanh(Network(c.target, "", "policy", c.next)));
  const TorchTensor action = torch::tanh(Network(c.now, "", "policy", c.observation));
  const TorchTensor loss =
      (c.weight * (Value(c.now, "critic1_", c.observation, c.action) - y).square()).mean() -
      Value(c.fixed, "critic1_", c.observation, action).mean();
  loss.backward();
  EXPECT_NEAR(c.numbers.at("loss"), loss.item<double>(), 1e-4);
  c.ExpectGradients();
}

// theta' <- polyak theta' + (1 - polyak) theta, with the policy's steps; of the policy too.
TEST(Td3Test, TargetsFollowInThePolicysSteps) {
  const auto algorithm = MakeTd3(Td3Setup({{"td3.polyak", "0.75"}})).ValueOrThrow();
  std::vector<float> learned(algorithm->learned().size()), targets(algorithm->targets().size());
  algorithm->Initialize(1, Initializer::kGlorot, learned, targets);
  ASSERT_EQ(learned, targets);
  for (float& value : learned) value += 1;
  const std::vector<float> before = targets;
  algorithm->AfterStep(0, learned, targets);
  EXPECT_EQ(targets, before);
  algorithm->AfterStep(1, learned, targets);
  for (size_t i = 0; i < targets.size(); ++i) ASSERT_NEAR(targets[i], before[i] + 0.25, 1e-6);
}

TEST(Td3Test, WeightsScaleTheCriticsAlone) {
  const auto algorithm = MakeTd3(Td3Setup()).ValueOrThrow();
  std::vector<float> gradient(algorithm->learned().size(), 1.0F);
  for (float& value : algorithm->Weighted(gradient)) value = 2;
  for (const auto& [name, tensor] : algorithm->learned().Tensors(gradient))
    for (const float value : tensor.Floats())
      ASSERT_EQ(value, name.starts_with("critic") ? 2 : 1) << name;
}

// ---- the agent

class Td3Play : public ReplayPlay {
 public:
  explicit Td3Play(Settings settings = {})
      : ReplayPlay([&](Settings common) {
          AgentSetup setup = Td3Setup(common);
          Set(setup.config, settings);
          return setup;
        }) {}
  std::map<std::string, Tensor> Weights() {
    const auto files = agent().Save(Agent::Part::kWeights);
    return ParseSafetensors(files.at("weights.safetensors"))->tensors;
  }
};

// One step an update, the policy's every third: none of its parameters moves in between, not even
// by Adam's momentum.
TEST(Td3Test, ThePolicyMovesInItsStepsAlone) {
  Td3Play play({{"replay.ratio", "0.8"}, {"td3.delay", "3"}, {"optimizer.kind", "adam_torch"}});
  for (int update = 0; update < 2; ++update) EXPECT_EQ(play.Update().steps, 0);
  auto before = play.Weights();
  for (int step = 0; step < 9; ++step) {
    ASSERT_EQ(play.Update().steps, 1);
    const auto after = play.Weights();
    for (const auto& [name, tensor] : after) {
      const bool moves = name.starts_with("critic") || step % 3 == 2;
      EXPECT_EQ(tensor.bytes != before.at(name).bytes, moves) << name << " in step " << step;
    }
    before = after;
  }
}

// Five steps were taken: the policy's next one is the second of the three that follow.
TEST(Td3Test, ARestoredAgentGoesOnWithTheSameBits) {
  const Settings settings = {{"replay.ratio", "0.8"}, {"learn.shards", "2"},
                             {"td3.delay", "3"},      {"optimizer.clip_norm", "0.1"},
                             {"replay.alpha", "0.6"}, {"replay.beta", "0.4"}};
  Td3Play whole(settings), other(settings);
  for (int update = 0; update < 7; ++update) whole.Update();
  ASSERT_TRUE(
      other.agent().Restore(whole.agent().Save(Agent::Part::kSlots), Agent::Part::kSlots).ok());
  other.SkipTo(whole.drawn(), whole);
  for (int update = 0; update < 4; ++update) {
    EXPECT_EQ(whole.Update().numbers, other.Update().numbers);
    EXPECT_EQ(other.agent().parameter_hash(), whole.agent().parameter_hash());
  }
  EXPECT_EQ(other.agent().Save(Agent::Part::kSlots), whole.agent().Save(Agent::Part::kSlots));
}

TEST(Td3Test, ThreadsLeaveNoTrace) {
  std::set<std::string> hashes;
  for (const char* threads : {"1", "2"}) {
    Td3Play play({{"learn.shards", "2"}, {"learn.threads", threads}});
    for (int update = 0; update < 5; ++update) play.Update();
    hashes.insert(play.agent().parameter_hash());
  }
  EXPECT_EQ(hashes.size(), 1u);
}

// One row's action at a step of its episode.
std::vector<float> Act(Agent& agent, uint32_t step, bool greedy) {
  std::array<float, kInputs> observation = {0.3F, -1, 0.4F, 0.2F, -0.6F};
  InferenceBatch batch(agent.shape(), 1);
  batch.rows.push_back({.greedy = greedy,
                        .step = step,
                        .key = 77,
                        .observation = std::as_bytes(std::span(observation))});
  EXPECT_TRUE(agent.Infer(batch).ok());
  EXPECT_EQ(batch.actions, batch.action_values);
  return batch.actions;
}

struct Moments {
  double mean = 0, deviation = 0;
};
Moments MomentsOf(const std::vector<double>& all) {
  Moments m;
  for (const double x : all) m.mean += x / static_cast<double>(all.size());
  for (const double x : all)
    m.deviation += (x - m.mean) * (x - m.mean) / static_cast<double>(all.size());
  m.deviation = std::sqrt(m.deviation);
  return m;
}

// Uniform until something was learned, normal around the policy's action from then on; greedy rows
// get that action, tanh of the network's output.
TEST(Td3Test, ExploresAtRandomAtFirstAndAroundThePolicyThen) {
  Td3Play play({{"td3.noise", "0.05"}});
  EXPECT_TRUE(play.agent().explores());
  constexpr uint32_t kSteps = 2000;
  const auto draws = [&] {
    std::vector<double> all;
    for (uint32_t step = 0; step < kSteps; ++step) all.push_back(Act(play.agent(), step, false)[1]);
    return all;
  };
  const auto policy = [&] {
    const Named weights = ToTorch(play.Weights(), false);
    return torch::tanh(Network(weights, "", "policy",
                               torch::tensor({{0.3F, -1.0F, 0.4F, 0.2F, -0.6F}})))[0][1]
        .item<double>();
  };
  const Moments uniform = MomentsOf(draws());
  EXPECT_NEAR(uniform.mean, 0, 0.04);
  EXPECT_NEAR(uniform.deviation, 1 / std::sqrt(3.0), 0.02);
  EXPECT_NEAR(Act(play.agent(), 3, true)[1], policy(), 1e-5);
  for (int update = 0; update < 3; ++update) play.Update();  // 40 steps, then the first is learned
  const Moments normal = MomentsOf(draws());
  EXPECT_NEAR(normal.mean, policy(), 0.005);
  EXPECT_NEAR(normal.deviation, 0.05, 0.003);
  EXPECT_NEAR(Act(play.agent(), 3, true)[1], policy(), 1e-5);
  EXPECT_EQ(Act(play.agent(), 9, true), Act(play.agent(), 3, true));
}

TEST(Td3Test, ActionsStayWithinTheirBounds) {
  Td3Play play({{"td3.noise", "5"}, {"td3.random_start", "false"}});
  for (uint32_t step = 0; step < 50; ++step)
    for (const float action : Act(play.agent(), step, false)) EXPECT_LE(std::abs(action), 1);
}

TEST(Td3Test, RefusesWhatItHasNoUseFor) {
  AgentSetup setup = Td3Setup();
  setup.environment.action = {.discrete = true, .n = 3, .low = {}, .high = {}};
  EXPECT_EQ(MakeAgent(setup).status().message(),
            "run.algorithm=td3: the environment's actions are discrete; expected continuous ones");
  EXPECT_EQ(MakeAgent(Td3Setup({{"learn.entropy_target", "1"}})).status().message(),
            "learn.entropy_target: td3 has no policy whose entropy counts; expected none");
}

}  // namespace
}  // namespace samara::td3_test
