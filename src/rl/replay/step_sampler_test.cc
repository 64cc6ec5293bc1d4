#include "rl/replay/step_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace samara::step_sampler_test {
namespace {

constexpr ReplayShape kShape = {.capacity = 8, .length = 2, .observation_bytes = 1};

void AddBlocks(StepSampler& sampler, int blocks) {
  Unroll unroll;
  unroll.entries = 3;
  unroll.headers.resize(3);
  unroll.observations.resize(3);
  for (int block = 0; block < blocks; ++block) sampler.Add(unroll, 0);
}

std::vector<float> Zeros(const StepSampler& sampler) {
  return std::vector<float>(sampler.drawn().size());
}

TEST(StepSamplerTest, NewStepsAreAsUrgentAsTheMostUrgentOne) {
  StepSampler sampler(kShape, /*alpha=*/1, /*beta=*/1);
  AddBlocks(sampler, 2);
  sampler.Draw(CounterRng(1), 100, /*shards=*/1, /*share=*/1);
  EXPECT_EQ(std::ranges::max(sampler.drawn()), 3u);
  for (const float weight : sampler.weights()) EXPECT_EQ(weight, 1) << "all are alike";
  sampler.SetPriorities(Zeros(sampler));  // of all four: next to nothing
  AddBlocks(sampler, 1);
  sampler.Draw(CounterRng(2), 100, 1, 1);
  EXPECT_GE(std::ranges::min(sampler.drawn()), 4u);
  // six steps in each of two shards, each of the two new ones drawn with probability 1/2 here
  for (const float weight : sampler.weights()) EXPECT_NEAR(weight, 1.0 / (6 * 0.5), 1e-4);
  sampler.Draw(CounterRng(2), 100, 2, 0.5);
  for (const float weight : sampler.weights()) EXPECT_NEAR(weight, 1.0 / (12 * 0.25), 1e-4);
}

TEST(StepSamplerTest, ARestoredOneDrawsTheSame) {
  for (const double alpha : {0.0, 0.7}) {
    StepSampler sampler(kShape, alpha, alpha), other(kShape, alpha, alpha);
    AddBlocks(sampler, 3);
    sampler.Draw(CounterRng(1), 4, 1, 1);
    sampler.SetPriorities(std::vector<float>{0.5F, 2, 8, 0.1F});
    const std::string saved = sampler.Save();
    ASSERT_TRUE(other.Restore(saved).ok());
    EXPECT_EQ(other.Save(), saved);
    for (StepSampler* each : {&sampler, &other}) {
      AddBlocks(*each, 1);
      each->Draw(CounterRng(3), 50, 1, 1);
    }
    EXPECT_TRUE(std::ranges::equal(sampler.drawn(), other.drawn()));
    EXPECT_TRUE(std::ranges::equal(sampler.weights(), other.weights()));
    EXPECT_EQ(sampler.replay().Save() == sampler.Save(), alpha == 0);
    for (size_t cut = 0; cut < saved.size(); cut += 3)
      EXPECT_EQ(other.Restore(saved.substr(0, cut)).code(), Code::kBadData) << cut;
  }
}

}  // namespace
}  // namespace samara::step_sampler_test
