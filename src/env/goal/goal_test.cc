// The goal tasks by hand: what is observed, what a step does, what is reached and what it pays.
#include <gtest/gtest.h>

#include <cmath>

#include "env/registry.h"
#include "env/simulated.h"

namespace samara::goal_test {
namespace {

class Played {
 public:
  explicit Played(const char* id)
      : owner_(NativeEnvironment(id).ValueOrThrow()().ValueOrThrow()),
        environment_(dynamic_cast<SimulatedEnvironment&>(*owner_)),
        observation_(environment_.spec().observation.elements()) {}

  const EnvironmentSpec& spec() const { return environment_.spec(); }
  const std::vector<float>& seen() const { return observation_; }
  std::vector<double> state() const { return environment_.CurrentState(); }
  void Start(std::vector<double> state) { environment_.ResetTo(state, bytes()); }
  void Draw(uint64_t seed) { environment_.Reset({.seed = seed}, bytes()); }
  StepResult Flip(int32_t bit) { return environment_.Step({bit, {}}, bytes()); }
  StepResult Push(float x, float y) {
    const float force[] = {x, y};
    return environment_.Step({0, force}, bytes());
  }

 private:
  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(observation_)); }

  std::unique_ptr<Environment> owner_;
  SimulatedEnvironment& environment_;
  std::vector<float> observation_;
};

TEST(GoalSpecTest, TheDistanceIsEuclideanAndTheThresholdBelongsToTheGoal) {
  const GoalSpec goal = {.size = 2, .threshold = 5};
  EXPECT_TRUE(goal.Reached(std::vector<float>{9, 9, 1, 1, 4, 5}));  // 3, 4
  EXPECT_FALSE(goal.Reached(std::vector<float>{9, 9, 1, 1, 4, 5.001F}));
  EXPECT_EQ(goal.Achieved(std::vector<float>{9, 1, 2, 4, 5})[1], 2);
  EXPECT_EQ(goal.Desired(std::vector<float>{9, 1, 2, 4, 5})[1], 5);
}

TEST(BitFlipTest, AnActionFlipsItsBitAndTheTargetEndsTheEpisode) {
  Played flip("BitFlip8-v0");
  flip.Start({0, 0, 0, 0, 0, 0, 0, 1, /*target*/ 1, 0, 0, 0, 0, 0, 0, 0});
  StepResult step = flip.Flip(0);
  EXPECT_EQ(step.reward, -1);
  EXPECT_FALSE(step.terminated);
  EXPECT_EQ(flip.seen(), (std::vector<float>{1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0}));
  step = flip.Flip(7);
  EXPECT_EQ(step.reward, 0);
  EXPECT_TRUE(step.terminated && !step.truncated);
}

// A policy that flips what differs needs as many steps as bits differ, n / 2 on average; the sum of
// 200 such binomials has a deviation of sqrt(200 n) / 2.
TEST(BitFlipTest, BothStringsAreDrawnUniformly) {
  for (const auto& [id, n] : {std::pair{"BitFlip8-v0", 8}, {"BitFlip15-v0", 15}}) {
    Played flip(id);
    EXPECT_EQ(flip.spec().action.n, n);
    double differ = 0, ones = 0;
    for (uint64_t seed = 0; seed < 200; ++seed) {
      flip.Draw(seed);
      for (int i = 0; i < n; ++i) {
        const auto at = static_cast<size_t>(i), target = static_cast<size_t>(n + i);
        differ += flip.seen()[at] != flip.seen()[target], ones += flip.seen()[target];
      }
    }
    const double deviation = std::sqrt(200.0 * n) / 2;
    EXPECT_NEAR(differ, 100 * n, 4 * deviation);
    EXPECT_NEAR(ones, 100 * n, 4 * deviation);
  }
}

TEST(PointReachTest, OnePushFromRest) {
  Played reach("PointReach-v0");
  reach.Start({0, 0, 0.5, -0.5, 0, 0});
  EXPECT_EQ(reach.Push(1, -0.5F).reward, -1);
  const std::vector<double> pushed = reach.state();
  EXPECT_NEAR(pushed[0], 0.1, 1e-15);
  EXPECT_NEAR(pushed[1], -0.05, 1e-15);
  EXPECT_NEAR(pushed[2], 0.51, 1e-15);
  EXPECT_NEAR(pushed[3], -0.505, 1e-15);
  reach.Push(0, 0);
  EXPECT_NEAR(reach.state()[0], 0.09, 1e-15);
  EXPECT_NEAR(reach.state()[2], 0.519, 1e-15);
}

TEST(PointReachTest, AWallStopsWhatMovesAcrossIt) {
  Played reach("PointReach-v0");
  reach.Start({1, 0.5, 0.95, 0, 0, 0});
  reach.Push(1, 0);
  EXPECT_EQ(reach.state()[0], 0);
  EXPECT_EQ(reach.state()[2], 1);
  EXPECT_NEAR(reach.state()[1], 0.45, 1e-15);
}

TEST(PointReachTest, TheGoalPaysWithinFiveHundredthsAndTheEpisodeGoesOn) {
  Played reach("PointReach-v0");
  for (const auto& [x, reward] : {std::pair{0.049, 0.0}, {0.051, -1.0}, {-0.049, 0.0}}) {
    reach.Start({0, 0, x, 0, 0, 0});
    const StepResult step = reach.Push(0, 0);
    EXPECT_EQ(step.reward, reward);
    EXPECT_FALSE(step.terminated || step.truncated);
  }
}

// The reference: full force toward where the mass would come to rest.
TEST(PointReachTest, ASimpleControllerReachesEveryGoal) {
  Played reach("PointReach-v0");
  for (uint64_t seed = 0; seed < 100; ++seed) {
    reach.Draw(seed);
    double last = -1;
    for (int i = 0; i < 50; ++i) {
      const std::vector<double> s = reach.state();
      const auto force = [&](size_t axis) {
        return static_cast<float>(4 * (s[4 + axis] - s[2 + axis]) - 4 * s[axis]);
      };
      last = reach.Push(force(0), force(1)).reward;
    }
    EXPECT_EQ(last, 0) << seed;
  }
}

}  // namespace
}  // namespace samara::goal_test
