#include "rl/algorithms/sac.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

#include "rl/algorithms/replay_test_util.h"
#include "rl/learner/distribution.h"

namespace samara::sac_test {
namespace {

using namespace replay_test;

AgentSetup SacSetup(Settings settings = {}) {
  AgentSetup setup = ContinuousSetup("sac");
  Set(setup.config, {{"learn.entropy_cost", "0.3"},
                     {"learn.entropy_target", "-2"},
                     {"learn.entropy_speed", "2"}});
  Set(setup.config, settings);
  return setup;
}

TorchTensor LeastValue(const Named& all, const TorchTensor& observation,
                       const TorchTensor& sample) {
  const TorchTensor x = torch::cat({observation, sample.tanh()}, 1);
  return torch::minimum(Network(all, "critic1_", "value", x), Network(all, "critic2_", "value", x))
      .squeeze(1);
}

// The loss of Haarnoja et al. 2018b, written anew with torch.
TEST(SacTest, TheGradientIsThatOfThePapersLoss) {
  constexpr size_t kRows = 24;
  const auto algorithm = MakeSac(SacSetup({{"sac.gamma", "0.9"}})).ValueOrThrow();
  std::vector<float> learned(algorithm->learned().size()), targets(algorithm->targets().size());
  algorithm->Initialize(1, Initializer::kGlorot, learned, targets);
  std::vector<float> others = learned;  // targets that are not the critics
  algorithm->Initialize(2, Initializer::kGlorot, others, targets);
  Steps steps(kRows);
  const CounterRng noise(9);
  std::vector<float> gradient(learned.size()), weights(kRows), errors(kRows);
  for (size_t i = 0; i < kRows; ++i) weights[i] = 0.25F + static_cast<float>(i % 3) / 2;
  const auto scratch = algorithm->MakeScratch(kRows);
  const auto numbers = algorithm->Gradient({.steps = steps.steps,
                                            .weights = weights,
                                            .learned = learned,
                                            .targets = targets,
                                            .noise = noise,
                                            .errors = errors},
                                           *scratch, gradient);

  const Named now = ToTorch(algorithm->learned().Tensors(learned), true),
              target = ToTorch(algorithm->targets().Tensors(targets), false);
  const auto draws = [&](size_t first) {
    std::vector<float> values(kRows * kDimensions);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(noise.Normal(first + i));
    return torch::tensor(values).reshape({kRows, kDimensions});
  };
  const auto distribution = ActionDistribution::TanhNormal(kDimensions);
  // mean + deviation * noise, and its log-probability
  const auto act = [&](const TorchTensor& observation, const TorchTensor& epsilon) {
    const TorchTensor policy = Network(now, "", "policy", observation);
    const auto parts = policy.chunk(2, 1);
    const TorchTensor sample = parts[0] + (torch::softplus(parts[1]) + 1e-3) * epsilon;
    return std::pair(sample, distribution.LogProb(policy, sample));
  };
  const TorchTensor x = steps.Columns(0, kInputs), next = steps.Columns(kInputs, kInputs),
                    action = steps.Columns(2 * kInputs, kDimensions),
                    reward = steps.Columns(2 * kInputs + kDimensions, 1).squeeze(1);
  TorchTensor goes_on = torch::ones({kRows});
  for (size_t i = 0; i < kRows; ++i)
    if (steps.steps[i].discount == 0) goes_on[static_cast<int64_t>(i)] = 0;
  const TorchTensor alpha = (2 * now.at("entropy_cost")).exp();
  const auto [next_sample, next_log_prob] = act(next, draws(0));
  const TorchTensor y =
      (reward + 0.9 * goes_on * (LeastValue(target, next, next_sample) - alpha * next_log_prob))
          .detach();
  const TorchTensor played = torch::cat({x, action.tanh()}, 1);
  TorchTensor critic_loss = torch::zeros({}), error = torch::zeros({kRows});
  for (const char* critic : {"critic1_", "critic2_"}) {
    const TorchTensor off = Network(now, critic, "value", played).squeeze(1) - y;
    critic_loss = critic_loss + (torch::tensor(weights) * off.square()).mean();
    error = error + off.detach().abs() / 2;
  }
  EXPECT_TRUE(torch::allclose(torch::tensor(errors), error, 1e-4, 1e-5));
  const auto [sample, log_prob] = act(x, draws(kRows * kDimensions));
  Named fixed;  // no gradient of the policy's loss reaches the critics
  for (const auto& [name, tensor] : now) fixed[name] = tensor.detach();
  const TorchTensor policy_loss = (alpha.detach() * log_prob - LeastValue(fixed, x, sample)).mean();
  const TorchTensor entropy_loss = alpha * (-log_prob.detach().mean() + 2);
  const TorchTensor loss = critic_loss + policy_loss + entropy_loss;
  loss.backward();

  EXPECT_NEAR(numbers.at("loss"), loss.item<double>(), 1e-4);
  EXPECT_NEAR(numbers.at("value_loss"), critic_loss.item<double>(), 1e-4);
  EXPECT_NEAR(numbers.at("policy_loss"), policy_loss.item<double>(), 1e-5);
  for (const auto& [name, tensor] : algorithm->learned().Tensors(gradient)) {
    const TorchTensor expected = now.at(name).grad().contiguous();
    const std::vector<float> values = tensor.Floats();
    ASSERT_EQ(static_cast<int64_t>(values.size()), expected.numel()) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      const float e = expected.data_ptr<float>()[i];
      EXPECT_NEAR(values[i], e, 1e-5 + 1e-4 * std::abs(e)) << name << " " << i;
    }
  }
}

// theta' <- polyak theta' + (1 - polyak) theta
TEST(SacTest, TargetsFollowTheCritics) {
  const auto algorithm = MakeSac(SacSetup({{"sac.polyak", "0.75"}})).ValueOrThrow();
  std::vector<float> learned(algorithm->learned().size()), targets(algorithm->targets().size());
  algorithm->Initialize(1, Initializer::kGlorot, learned, targets);
  const auto before = algorithm->targets().Tensors(targets);
  const auto critics = algorithm->learned().Tensors(learned);
  for (const auto& [name, tensor] : before)
    EXPECT_EQ(tensor.bytes, critics.at(name).bytes) << "at first they are the critics: " << name;
  for (float& value : learned) value += 1;
  algorithm->AfterStep(0, learned, targets);
  for (const auto& [name, tensor] : algorithm->targets().Tensors(targets)) {
    const std::vector<float> now = tensor.Floats(), was = before.at(name).Floats();
    for (size_t i = 0; i < now.size(); ++i) EXPECT_NEAR(now[i], was[i] + 0.25, 1e-6) << name;
  }
}

// ---- the agent

// The agent of a run whose random environment is played by hand.
class Play : public ReplayPlay {
 public:
  explicit Play(Settings settings = {})
      : ReplayPlay([&](Settings common) {
          AgentSetup setup = SacSetup(common);
          Set(setup.config, settings);
          return setup;
        }) {}
};

TEST(ReplayLearnerTest, HowMuchIsLearnedFollowsFromHowMuchWasPlayed) {
  Play play;
  int64_t steps = 0;
  for (int update = 1; update <= 9; ++update) {
    const UpdateReport report = play.Update();
    EXPECT_TRUE(report.applied);
    steps += report.steps;
    // 20 steps an update, none learned from before 40: a minibatch of 16 for each 2 of the rest
    EXPECT_EQ(steps, std::max(0, 20 * update - 40) * 8 / 16) << update;
    EXPECT_EQ(play.agent().version(), static_cast<uint64_t>(update));
  }
  EXPECT_TRUE(play.agent().finite());
}

TEST(ReplayLearnerTest, ThreadsLeaveNoTraceAndShardsDo) {
  std::set<std::string> hashes;
  for (const char* threads : {"1", "2", "3"}) {
    Play play({{"learn.shards", "2"}, {"learn.threads", threads}});
    for (int update = 0; update < 5; ++update) play.Update();
    hashes.insert(play.agent().parameter_hash());
  }
  EXPECT_EQ(hashes.size(), 1u);
  Play one;
  for (int update = 0; update < 5; ++update) one.Update();
  hashes.insert(one.agent().parameter_hash());
  EXPECT_EQ(hashes.size(), 2u);
}

TEST(ReplayLearnerTest, ARestoredAgentGoesOnWithTheSameBits) {
  Play whole({{"learn.shards", "2"}});
  for (int update = 0; update < 6; ++update) whole.Update();  // the replay is full: 120 of 100
  const auto files = whole.agent().Save(Agent::Part::kSlots);
  Play other({{"learn.shards", "2"}});
  ASSERT_TRUE(other.agent().Restore(files, Agent::Part::kSlots).ok());
  EXPECT_EQ(other.agent().parameter_hash(), whole.agent().parameter_hash());
  EXPECT_EQ(other.agent().version(), 6u);
  other.SkipTo(whole.drawn(), whole);
  for (int update = 0; update < 3; ++update) {
    EXPECT_EQ(whole.Update().numbers, other.Update().numbers);
    EXPECT_EQ(other.agent().parameter_hash(), whole.agent().parameter_hash());
  }
  EXPECT_EQ(other.agent().Save(Agent::Part::kSlots), whole.agent().Save(Agent::Part::kSlots));
}

TEST(ReplayLearnerTest, FilesThatAreDamagedOrOfAnotherRunChangeNothing) {
  Play play;
  for (int update = 0; update < 3; ++update) play.Update();
  const auto files = play.agent().Save(Agent::Part::kSlots);
  Play other;
  const std::string before = other.agent().parameter_hash();
  for (const auto& [name, bytes] : files) {
    auto damaged = files;
    damaged[name] = bytes.substr(0, bytes.size() / 2);
    EXPECT_EQ(other.agent().Restore(damaged, Agent::Part::kSlots).code(), Code::kBadData) << name;
    damaged.erase(name);
    EXPECT_EQ(other.agent().Restore(damaged, Agent::Part::kSlots).code(), Code::kBadData) << name;
    EXPECT_EQ(other.agent().parameter_hash(), before);
  }
  Play wider({{"network.layers", "\"dense 13 tanh, dense 7 relu\""}});
  EXPECT_EQ(wider.agent().Restore(files, Agent::Part::kWeights).code(), Code::kBadData);
  // weights alone act
  ASSERT_TRUE(
      other.agent().Restore(play.agent().Save(Agent::Part::kWeights), Agent::Part::kWeights).ok());
  EXPECT_EQ(other.agent().parameter_hash(), play.agent().parameter_hash());
}

TEST(ReplayLearnerTest, ActingIsAFunctionOfTheRow) {
  Play play;
  const ModelShape& shape = play.agent().shape();
  const auto act = [&](const std::vector<uint32_t>& slots, bool greedy) {
    InferenceBatch batch(shape, kSlots);
    std::vector<std::array<float, kInputs>> observations;
    observations.reserve(slots.size());
    for (const uint32_t slot : slots) {
      auto& observation = observations.emplace_back();
      for (size_t i = 0; i < kInputs; ++i)
        observation[i] = static_cast<float>(CounterRng(slot).Normal(i));
      batch.rows.push_back({.slot = slot,
                            .greedy = greedy,
                            .step = 4,
                            .key = 50 + slot,
                            .observation = std::as_bytes(std::span(observation))});
    }
    batch.status.resize(slots.size());
    EXPECT_TRUE(play.agent().Infer(batch).ok());
    std::map<uint32_t, std::vector<float>> actions;
    for (size_t i = 0; i < slots.size(); ++i) {
      const auto begin = batch.actions.begin() + static_cast<ptrdiff_t>(i * kDimensions);
      actions[slots[i]] = std::vector<float>(begin, begin + kDimensions);
      for (size_t d = 0; d < kDimensions; ++d)
        EXPECT_EQ(batch.actions[i * kDimensions + d],
                  std::tanh(batch.action_values[i * kDimensions + d]));
    }
    return actions;
  };
  const auto all = act({0, 1, 2, 3}, false);
  for (const uint32_t slot : {0u, 1u, 2u, 3u}) EXPECT_EQ(act({slot}, false).at(slot), all.at(slot));
  EXPECT_NE(act({1}, true), act({1}, false));
}

// Written out for a policy whose outputs do not depend on the observation, and critics that are
// linear in the action: the loss is the mean over steps of the sum over dimensions of
// alpha log pi(a_d) - c_d a_d. A mean over dimensions would divide the temperature by their number.
TEST(SacTest, TheTemperatureCountsAlikeInEachDimensionOfAnAction) {
  constexpr size_t kRows = 64;
  constexpr double kAlpha = 0.3;
  for (const size_t dimensions : {1, 6}) {
    AgentSetup setup = SacSetup({{"network.layers", "\"linear\""},
                                 {"learn.entropy_cost", "0.3"},
                                 {"learn.entropy_target", "none"}});
    setup.environment.action = {.discrete = false,
                                .n = static_cast<int64_t>(dimensions),
                                .low = std::vector<float>(dimensions, -1),
                                .high = std::vector<float>(dimensions, 1)};
    const auto algorithm = MakeSac(setup).ValueOrThrow();
    std::vector<float> learned(algorithm->learned().size()), targets(algorithm->targets().size());
    auto tensors = algorithm->learned().Tensors(learned);  // zeros
    std::vector<float> bias, slopes(kInputs);
    for (size_t d = 0; d < dimensions; ++d) bias.push_back(0.1F * static_cast<float>(d) - 0.2F);
    for (size_t d = 0; d < dimensions; ++d) bias.push_back(0.3F - 0.2F * static_cast<float>(d));
    for (size_t d = 0; d < dimensions; ++d) slopes.push_back(0.5F + static_cast<float>(d));
    tensors["policy_bias"] = Tensor::OfFloats({static_cast<int64_t>(2 * dimensions)}, bias);
    for (const char* critic : {"critic1_value_weight", "critic2_value_weight"})
      tensors[critic] = Tensor::OfFloats({1, static_cast<int64_t>(kInputs + dimensions)}, slopes);
    ASSERT_TRUE(algorithm->learned().FromTensors(tensors, learned).ok());

    const std::vector<float> observation(kInputs), action(dimensions);
    const auto bytes = std::as_bytes(std::span(observation));
    const std::vector<Transition> steps(kRows, {.observation = bytes,
                                                .action = action,
                                                .reward = 0,
                                                .next_observation = bytes,
                                                .discount = 0});
    const std::vector<float> weights(kRows, 1.0F);
    std::vector<float> gradient(learned.size()), errors(kRows);
    const CounterRng noise(9);
    const auto numbers = algorithm->Gradient({.steps = steps,
                                              .weights = weights,
                                              .learned = learned,
                                              .targets = targets,
                                              .noise = noise,
                                              .errors = errors},
                                             *algorithm->MakeScratch(kRows), gradient);
    const std::vector<float> found =
        algorithm->learned().Tensors(gradient).at("policy_bias").Floats();
    double loss = 0;
    for (size_t d = 0; d < dimensions; ++d) {
      const double mean = bias[d], parameter = bias[dimensions + d], c = slopes[kInputs + d];
      const double deviation = std::log1p(std::exp(parameter)) + 1e-3;
      const double slope = 1 / (1 + std::exp(-parameter));
      double by_mean = 0, by_parameter = 0;
      for (size_t i = 0; i < kRows; ++i) {
        const double draw = noise.Normal((kRows + i) * dimensions + d);
        const double a = std::tanh(mean + deviation * draw);
        const double log_pi = -0.5 * draw * draw - std::log(deviation) - 0.5 * std::log(2 * M_PI) -
                              std::log(1 - a * a);
        loss += (kAlpha * log_pi - c * a) / kRows;
        const double by_sample = kAlpha * 2 * a - c * (1 - a * a);
        by_mean += by_sample / kRows;
        by_parameter += (by_sample * draw - kAlpha / deviation) * slope / kRows;
      }
      EXPECT_NEAR(found[d], by_mean, 1e-5) << d << " of " << dimensions;
      EXPECT_NEAR(found[dimensions + d], by_parameter, 1e-5) << d << " of " << dimensions;
    }
    EXPECT_NEAR(numbers.at("policy_loss"), loss, 1e-4);
  }
}

TEST(SacTest, WithoutATargetTheTemperatureIsTheCost) {
  for (const char* cost : {"0", "0.2"}) {
    const AgentSetup setup =
        SacSetup({{"learn.entropy_cost", cost}, {"learn.entropy_target", "none"}});
    const auto algorithm = MakeSac(setup).ValueOrThrow();
    std::vector<float> learned(algorithm->learned().size()), targets(algorithm->targets().size());
    algorithm->Initialize(1, Initializer::kGlorot, learned, targets);
    EXPECT_EQ(algorithm->coefficients(learned).at("entropy_cost"), std::atof(cost));
    EXPECT_TRUE(MakeAgent(setup).ValueOrThrow()->finite()) << "what is not finite is not saved";
  }
}

// HalfCheetah's: a policy of means and deviations, two critics, and the temperature.
TEST(SacTest, HasThePublishedParameterCounts) {
  AgentSetup setup = SacSetup({{"network.layers", "\"dense 256 relu, dense 256 relu\""}});
  setup.environment.observation = {DType::kFloat32, {17}};
  setup.environment.action = {.discrete = false,
                              .n = 6,
                              .low = std::vector<float>(6, -1),
                              .high = std::vector<float>(6, 1)};
  EXPECT_EQ(MakeAgent(setup).ValueOrThrow()->parameter_count(), 73'484 + 2 * 72'193 + 1);
}

// Importance weights are those of the critics' errors: the learner divides no other gradient.
TEST(SacTest, WeightsScaleTheCriticsAlone) {
  AgentSetup discrete = SacSetup({{"learn.entropy_target", "0.5"}});
  discrete.environment.action = {.discrete = true, .n = kDimensions, .low = {}, .high = {}};
  for (const AgentSetup& setup : {SacSetup(), discrete}) {
    const auto algorithm = MakeSac(setup).ValueOrThrow();
    std::vector<float> gradient(algorithm->learned().size(), 1.0F);
    for (float& value : algorithm->Weighted(gradient)) value = 2;
    for (const auto& [name, tensor] : algorithm->learned().Tensors(gradient))
      for (const float value : tensor.Floats())
        ASSERT_EQ(value, name.starts_with("critic") ? 2 : 1) << name;
  }
}

TEST(SacTest, RefusesWhatItHasNoUseFor) {
  const auto refused = [](Settings settings) {
    return MakeAgent(SacSetup(settings)).status().message();
  };
  EXPECT_EQ(refused({{"network.lstm", "8"}}),
            "network.lstm: sac learns with perceptrons; expected 0");
  EXPECT_EQ(refused({{"network.gru", "8"}}),
            "network.gru: sac learns with perceptrons; expected 0");
  EXPECT_NE(refused({{"network.layers", "\"dense 8 vbn relu\""}}).find("expected dense layers"),
            std::string::npos);
  EXPECT_EQ(refused({{"replay.batch", "1"}, {"learn.shards", "2"}}),
            "replay.batch=1: expected at least learn.shards=2");
  EXPECT_NE(refused({{"replay.capacity", "10"}}).find("of an update"), std::string::npos);
  EXPECT_NE(refused({{"replay.start", "1e7"}}).find("at most replay.capacity"), std::string::npos);
  AgentSetup setup = SacSetup();
  setup.environment.action = {.discrete = true, .n = 4, .low = {}, .high = {}, .sizes = {2, 2}};
  EXPECT_NE(MakeAgent(setup).status().message().find("several discrete parts"), std::string::npos);
  setup = SacSetup({{"learn.entropy_target", "2"}});
  setup.environment.action = {.discrete = true, .n = 4, .low = {}, .high = {}};
  EXPECT_NE(MakeAgent(setup).status().message().find("=2: more than 4 actions can have"),
            std::string::npos);
  setup.environment.action.n = 1;
  EXPECT_TRUE(MakeAgent(setup).status().message().ends_with("can have; expected none"));
  setup.config.learn.entropy_target.reset();
  EXPECT_TRUE(MakeAgent(setup).ok());
}

AgentSetup DiscreteSetup(Settings settings) {
  AgentSetup setup = SacSetup(settings);
  setup.environment.action = {.discrete = true, .n = kDimensions, .low = {}, .high = {}};
  return setup;
}

// The loss of Christodoulou 2019, equations 10 to 12, written anew with torch.
TEST(DiscreteSacTest, TheGradientIsThatOfThePapersLoss) {
  constexpr size_t kRows = 24;
  const auto algorithm =
      MakeSac(DiscreteSetup({{"sac.gamma", "0.9"}, {"learn.entropy_target", "0.6"}}))
          .ValueOrThrow();
  std::vector<float> learned(algorithm->learned().size()), targets(algorithm->targets().size());
  algorithm->Initialize(1, Initializer::kGlorot, learned, targets);
  std::vector<float> others = learned;  // targets that are not the critics
  algorithm->Initialize(2, Initializer::kGlorot, others, targets);
  Steps steps(kRows);
  std::vector<float> played(kRows), gradient(learned.size()), weights(kRows), errors(kRows);
  std::vector<int64_t> index(kRows);
  for (size_t i = 0; i < kRows; ++i) {
    index[i] = static_cast<int64_t>(i % kDimensions), played[i] = static_cast<float>(index[i]);
    steps.steps[i].action = std::span(played).subspan(i, 1);
    weights[i] = 0.25F + static_cast<float>(i % 3) / 2;
  }
  const auto scratch = algorithm->MakeScratch(kRows);
  const auto numbers = algorithm->Gradient({.steps = steps.steps,
                                            .weights = weights,
                                            .learned = learned,
                                            .targets = targets,
                                            .noise = CounterRng(0),
                                            .errors = errors},
                                           *scratch, gradient);

  const Named now = ToTorch(algorithm->learned().Tensors(learned), true);
  const Named target = ToTorch(algorithm->targets().Tensors(targets), false);
  const TorchTensor x = steps.Columns(0, kInputs), next = steps.Columns(kInputs, kInputs),
                    reward = steps.Columns(2 * kInputs + kDimensions, 1).squeeze(1);
  TorchTensor goes_on = torch::ones({kRows});
  for (size_t i = 0; i < kRows; ++i)
    if (steps.steps[i].discount == 0) goes_on[static_cast<int64_t>(i)] = 0;
  const auto least = [](const Named& all, const TorchTensor& observation) {
    return torch::minimum(Network(all, "critic1_", "value", observation),
                          Network(all, "critic2_", "value", observation));
  };
  const TorchTensor alpha = (2 * now.at("entropy_cost")).exp();
  const TorchTensor next_log = torch::log_softmax(Network(now, "", "policy", next), 1);
  const TorchTensor y =
      (reward + 0.9 * goes_on * (next_log.exp() * (least(target, next) - alpha * next_log)).sum(1))
          .detach();
  TorchTensor critic_loss = torch::zeros({}), error = torch::zeros({kRows});
  for (const char* critic : {"critic1_", "critic2_"}) {
    const TorchTensor off =
        Network(now, critic, "value", x).gather(1, torch::tensor(index).unsqueeze(1)).squeeze(1) -
        y;
    critic_loss = critic_loss + (torch::tensor(weights) * off.square()).mean();
    error = error + off.detach().abs() / 2;
  }
  const TorchTensor log_pi = torch::log_softmax(Network(now, "", "policy", x), 1);
  const TorchTensor policy_loss =
      (log_pi.exp() * (alpha.detach() * log_pi - least(now, x).detach())).sum(1).mean();
  const TorchTensor entropy = -(log_pi.exp() * log_pi).sum(1).mean().detach();
  const TorchTensor loss = critic_loss + policy_loss + alpha * (entropy - 0.6);
  loss.backward();
  EXPECT_NEAR(numbers.at("loss"), loss.item<double>(), 1e-4);
  EXPECT_NEAR(numbers.at("entropy"), entropy.item<double>(), 1e-5);
  EXPECT_TRUE(torch::allclose(torch::tensor(errors), error, 1e-4, 1e-5));
  for (const auto& [name, tensor] : algorithm->learned().Tensors(gradient)) {
    const TorchTensor mine = torch::tensor(tensor.Floats()).reshape(tensor.shape);
    EXPECT_TRUE(torch::allclose(mine, now.at(name).grad(), 1e-3, 1e-5)) << name;
  }
}

TEST(DiscreteSacTest, ActionsAreDrawnByTheirProbabilities) {
  AgentSetup setup = DiscreteSetup({{"learn.entropy_target", "0.6"}});
  setup.slots = setup.rows_max = 1;
  const auto agent = MakeAgent(setup).ValueOrThrow();
  const std::vector<float> observation = {0.1F, -0.4F, 0.3F, 0.2F, 1};
  const Named weights = ToTorch(
      ParseSafetensors(agent->Save(Agent::Part::kWeights).at("weights.safetensors"))->tensors,
      false);
  const TorchTensor probability =
      torch::softmax(Network(weights, "", "policy", torch::tensor(observation).unsqueeze(0)), 1)[0];
  std::vector<double> counts(kDimensions);
  constexpr uint32_t kSteps = 6000;
  const auto play = [&](uint32_t step, bool greedy) {
    InferenceBatch batch(agent->shape(), 1);
    batch.rows.push_back({.greedy = greedy,
                          .step = step,
                          .key = 5,
                          .observation = std::as_bytes(std::span(observation))});
    EXPECT_TRUE(agent->Infer(batch).ok());
    return batch.index[0];
  };
  for (uint32_t step = 0; step < kSteps; ++step)
    ++counts.at(static_cast<size_t>(play(step, false)));
  for (int64_t a = 0; a < static_cast<int64_t>(kDimensions); ++a)
    EXPECT_NEAR(counts[static_cast<size_t>(a)] / kSteps, probability[a].item<double>(), 0.03);
  EXPECT_EQ(play(0, true), probability.argmax().item<int64_t>());
}

}  // namespace
}  // namespace samara::sac_test
