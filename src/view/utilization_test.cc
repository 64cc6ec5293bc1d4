#include "view/utilization.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

namespace samara {
namespace {

std::vector<StageShare> Shares(const std::map<std::string, double>& seconds, double workers) {
  return BusyShares(
      [&](const char* name) {
        const auto found = seconds.find(name);
        return found == seconds.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
      },
      workers);
}

// ten seconds: four workers step for 12 of 40, the server works for 6, the learner for 9
std::map<std::string, double> ExampleSeconds() {
  return {
      {"seconds_environment", 12},     {"seconds_inference", 4},     {"seconds_server", 2},
      {"seconds_server_wait", 4},      {"seconds_learner_batch", 1}, {"seconds_learner_forward", 3},
      {"seconds_learner_backward", 4}, {"seconds_learner_step", 1},  {"seconds_learner_wait", 1}};
}

TEST(BusyTest, SharesAreOfTheTimeThatAStageHas) {
  const auto stages = Shares(ExampleSeconds(), 4);
  ASSERT_EQ(stages.size(), 3u);
  EXPECT_EQ(stages[0].name, "environment");
  EXPECT_DOUBLE_EQ(stages[0].share, 0.3);
  EXPECT_EQ(stages[1].name, "inference");
  EXPECT_DOUBLE_EQ(stages[1].share, 0.6);
  EXPECT_EQ(stages[2].name, "learner");
  EXPECT_DOUBLE_EQ(stages[2].share, 0.9);
  EXPECT_EQ(Bottleneck(stages), "learner");
}

TEST(BusyTest, TheLargestShareBindsAndNotTheLargestTime) {
  auto seconds = ExampleSeconds();
  seconds["seconds_environment"] = 16;  // more than anything else, spread over four
  EXPECT_EQ(Bottleneck(Shares(seconds, 4)), "learner");
  seconds["seconds_environment"] = 39;
  EXPECT_EQ(Bottleneck(Shares(seconds, 4)), "environment");
}

TEST(BusyTest, SharesOfWorkAddUpToTheWhole) {
  const auto stages = WorkShares({{"inference", 6}, {"environment", 18}});
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_DOUBLE_EQ(stages[0].share, 0.25);
  EXPECT_DOUBLE_EQ(stages[1].share, 0.75);
  EXPECT_TRUE(WorkShares({{"inference", 0}}).empty());
}

TEST(BusyTest, WhatIsNotKnownIsLeftOut) {
  EXPECT_EQ(Shares(ExampleSeconds(), 0).size(), 2u);
  auto seconds = ExampleSeconds();
  seconds.erase("seconds_learner_step");
  EXPECT_EQ(Shares(seconds, 0).size(), 1u);
  EXPECT_TRUE(Shares({}, 4).empty());
  EXPECT_EQ(Bottleneck({}), "");
}

}  // namespace
}  // namespace samara
