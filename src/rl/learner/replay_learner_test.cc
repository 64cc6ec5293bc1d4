#include "rl/learner/replay_learner.h"

#include "rl/algorithms/replay_test_util.h"

namespace samara::replay_learner_test {
namespace {

using namespace replay_test;

// Learned numbers of two groups, with gradients that are functions of the step alone.
class TwoGroups : public StillAlgorithm {
 public:
  static constexpr size_t kSlow = 3, kAll = 7;
  TwoGroups() {
    for (size_t i = 0; i < kAll; ++i) learned_.AddNumber("number" + std::to_string(i));
  }
  static float GradientOf(uint64_t step, size_t i) {
    return static_cast<float>(CounterRng(step).Normal(i));
  }

  size_t acting() const override { return kSlow; }
  std::vector<ParameterGroup> groups() const override {
    return {{.name = "slow", .first = 0, .size = kSlow, .every = 3, .rate = 0.5},
            {.name = "quick", .first = kSlow, .size = kAll - kSlow}};
  }
  ReturnRule returns() const override { return {}; }
  void InitializeLearned(uint64_t, Initializer, std::span<float> learned) const override {
    std::ranges::fill(learned, 1.0F);
  }
  std::map<std::string, double> Gradient(const ReplayMinibatch& minibatch, ReplayScratch&,
                                         std::span<float> gradient) const override {
    for (size_t i = 0; i < kAll; ++i) gradient[i] = GradientOf(minibatch.step, i);
    return {{"loss", 1}};
  }
};

Result<std::unique_ptr<ReplayAlgorithm>> MakeTwoGroups(const AgentSetup&) {
  return std::unique_ptr<ReplayAlgorithm>(std::make_unique<TwoGroups>());
}

// Each group against an Adam of torch's with the group's rate and clipping, which sees the steps in
// which the group learns and no others.
TEST(ReplayLearnerGroupsTest, EachGroupHasAnOptimizerOfItsOwn) {
  ReplayPlay play(
      [](Settings common) {
        AgentSetup setup = ContinuousSetup("td3", common);
        Set(setup.config, {{"replay.ratio", "8"},
                           {"optimizer.kind", "adam_torch"},
                           {"optimizer.learning_rate", "0.01"},
                           {"optimizer.epsilon", "1e-8"},
                           {"optimizer.clip_norm", "1.5"}});
        return setup;
      },
      [](const AgentSetup& setup) {
        return MakeReplayLearner(setup, MakeTwoGroups).ValueOrThrow();
      });
  uint64_t steps = 0;
  for (int update = 0; update < 4; ++update) steps += static_cast<uint64_t>(play.Update().steps);
  ASSERT_EQ(steps, 20u);

  std::vector<float> expected;
  for (const ParameterGroup& group : TwoGroups().groups()) {
    TorchTensor parameter = torch::ones({static_cast<int64_t>(group.size)}).set_requires_grad(true);
    torch::optim::Adam adam({parameter}, torch::optim::AdamOptions(0.01 * group.rate).eps(1e-8));
    for (uint64_t step = 0; step < steps; ++step) {
      if (step % static_cast<uint64_t>(group.every) != static_cast<uint64_t>(group.every) - 1)
        continue;
      std::vector<float> gradient;
      for (size_t i = 0; i < group.size; ++i)
        gradient.push_back(TwoGroups::GradientOf(step, group.first + i));
      parameter.mutable_grad() = torch::tensor(gradient);
      torch::nn::utils::clip_grad_norm_({parameter}, 1.5);
      adam.step();
    }
    for (size_t i = 0; i < group.size; ++i)
      expected.push_back(parameter[static_cast<int64_t>(i)].item<float>());
  }
  const auto files = play.agent().Save(Agent::Part::kWeights);
  const auto weights = ParseSafetensors(files.at("weights.safetensors"))->tensors;
  for (size_t i = 0; i < TwoGroups::kAll; ++i)
    EXPECT_NEAR(weights.at("number" + std::to_string(i)).Floats()[0], expected[i], 1e-5) << i;
}

// Targets that are copied in every fourth step; step kBad has a gradient that is not finite.
class CopiedTargets : public TwoGroups {
 public:
  static constexpr uint64_t kBad = 11;
  CopiedTargets() {
    for (size_t i = 0; i < kAll; ++i) targets_.AddNumber("target" + std::to_string(i));
  }
  const ParameterBlocks& targets() const override { return targets_; }
  std::span<const float> Followed(std::span<const float> learned) const override { return learned; }
  double polyak(uint64_t step) const override { return step % 4 == 3 ? 0 : 1; }
  std::map<std::string, double> Gradient(const ReplayMinibatch& minibatch, ReplayScratch& scratch,
                                         std::span<float> gradient) const override {
    auto numbers = TwoGroups::Gradient(minibatch, scratch, gradient);
    if (minibatch.step == kBad) gradient[0] = std::nanf("");
    return numbers;
  }

 private:
  ParameterBlocks targets_;
};

// Ten steps an update, after which the targets are the parameters of step 7; the second update ends
// with step 11, whose own copy and that of step 15 are made at its end.
TEST(ReplayLearnerTargetsTest, AStepThatIsNotFiniteLosesNoCopyOfTheTargets) {
  ReplayPlay play(
      [](Settings common) {
        AgentSetup setup = ContinuousSetup("td3", common);
        Set(setup.config, {{"optimizer.learning_rate", "0.01"}});
        return setup;
      },
      [](const AgentSetup& setup) {
        return MakeReplayLearner(setup,
                                 [](const AgentSetup&) {
                                   return Result<std::unique_ptr<ReplayAlgorithm>>(
                                       std::make_unique<CopiedTargets>());
                                 })
            .ValueOrThrow();
      });
  const auto equal = [&] {
    const auto files = play.agent().Save(Agent::Part::kRun);
    const auto now = ParseSafetensors(files.at("weights.safetensors"))->tensors;
    const auto targets = ParseSafetensors(files.at("targets.safetensors"))->tensors;
    size_t same = 0;
    for (size_t i = 0; i < TwoGroups::kAll; ++i)
      same += now.at("number" + std::to_string(i)).Floats() ==
              targets.at("target" + std::to_string(i)).Floats();
    return same;
  };
  UpdateReport report;
  while (report.steps == 0) report = play.Update();
  EXPECT_TRUE(report.applied);
  EXPECT_EQ(report.steps, 10);
  EXPECT_EQ(equal(), 0u) << "learned numbers moved after the copy";
  report = play.Update();
  EXPECT_FALSE(report.applied);
  EXPECT_EQ(report.steps, 2);
  EXPECT_EQ(equal(), TwoGroups::kAll);
}

}  // namespace
}  // namespace samara::replay_learner_test
