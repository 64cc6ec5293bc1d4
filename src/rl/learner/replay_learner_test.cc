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

}  // namespace
}  // namespace samara::replay_learner_test
