// The memory tasks step by step as their headers tell them, what a perfect memory scores, and that
// no policy without one can pass its bound: every such policy is played.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "env/picture_test_util.h"
#include "env/registry.h"
#include "env/simulated.h"

namespace samara::memory_test {
namespace {

using Seen = std::vector<float>;

class Played {
 public:
  explicit Played(const char* id, bool render = false)
      : owner_(NativeEnvironment(id, render).ValueOrThrow()().ValueOrThrow()),
        environment_(dynamic_cast<SimulatedEnvironment&>(*owner_)),
        observation_(environment_.spec().observation.elements()) {}

  const EnvironmentSpec& spec() const { return environment_.spec(); }
  SimulatedEnvironment& environment() { return environment_; }
  Seen Start(std::vector<double> state) {
    environment_.ResetTo(state, bytes());
    return observation_;
  }
  Seen Draw(uint64_t seed) {
    environment_.Reset({.seed = seed}, bytes());
    return observation_;
  }
  StepResult Step(int32_t index) { return environment_.Step({index, {}}, bytes()); }
  const Seen& seen() const { return observation_; }

  int Red(int64_t y, int64_t x) { return RedAt(environment_, y, x); }

  // The rest of the episode under a policy that knows nothing but the observation of the moment.
  double Return(const std::function<int32_t(const Seen&)>& policy) {
    double total = 0;
    for (;;) {
      const StepResult step = Step(policy(observation_));
      total += step.reward;
      if (step.terminated || step.truncated) return total;
    }
  }

 private:
  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(observation_)); }

  std::unique_ptr<Environment> owner_;
  SimulatedEnvironment& environment_;
  Seen observation_;
};

// The best mean return over `starts` of all deterministic policies from the observations listed to
// `actions` actions.
double BestMemoryless(Played& played, const std::vector<std::vector<double>>& starts,
                      const std::vector<Seen>& observations, int32_t actions) {
  std::vector<int32_t> choice(observations.size(), 0);
  double best = -1e9;
  for (;;) {
    std::map<Seen, int32_t> table;
    for (size_t i = 0; i < choice.size(); ++i) table[observations[i]] = choice[i];
    double total = 0;
    for (const auto& start : starts) {
      played.Start(start);
      total += played.Return([&](const Seen& seen) { return table.at(seen); });
    }
    best = std::max(best, total / static_cast<double>(starts.size()));
    // the next policy, counting in base `actions`
    size_t digit = 0;
    while (digit < choice.size() && ++choice[digit] == actions) choice[digit++] = 0;
    if (digit == choice.size()) return best;
  }
}

// 1,000 drawn episodes of uniformly random actions.
double RandomMean(Played& played) {
  const CounterRng rng(7);
  uint64_t draws = 0;
  double total = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    played.Draw(seed);
    total += played.Return([&](const Seen&) {
      return static_cast<int32_t>(
          rng.UniformInt(draws++, static_cast<uint64_t>(played.spec().action.n)));
    });
  }
  return total / 1000;
}

struct RecallCase {
  const char* id;
  int delay;
};
class RecallTest : public testing::TestWithParam<RecallCase> {};
INSTANTIATE_TEST_SUITE_P(Both, RecallTest,
                         testing::Values(RecallCase{"Recall-v0", 10},
                                         RecallCase{"RecallLong-v0", 40}),
                         [](const auto& c) { return "Delay" + std::to_string(c.param.delay); });

TEST_P(RecallTest, ShowsTheCueOnceThenNothingThenAsks) {
  Played recall(GetParam().id);
  EXPECT_EQ(recall.Start({2, 0}), (Seen{0, 0, 1, 0, 0}));
  for (int i = 0; i < GetParam().delay; ++i) {
    const StepResult step = recall.Step(2);  // too early: ignored
    ASSERT_EQ(step.reward, 0);
    ASSERT_FALSE(step.terminated || step.truncated);
    ASSERT_EQ(recall.seen(), (Seen{0, 0, 0, 0, 0}));
  }
  ASSERT_FALSE(recall.Step(0).terminated);
  ASSERT_EQ(recall.seen(), (Seen{0, 0, 0, 0, 1}));
  const StepResult answer = recall.Step(2);
  EXPECT_EQ(answer.reward, 1);
  EXPECT_TRUE(answer.terminated);
  EXPECT_FALSE(answer.truncated);
  EXPECT_EQ(recall.seen(), (Seen{0, 0, 0, 0, 0}));
  EXPECT_EQ(recall.spec().steps_max, GetParam().delay + 2);
}

TEST_P(RecallTest, EveryWrongAnswerCostsOne) {
  Played recall(GetParam().id);
  for (int32_t cue = 0; cue < 4; ++cue)
    for (int32_t answer = 0; answer < 4; ++answer) {
      recall.Start({static_cast<double>(cue), 0});
      EXPECT_EQ(recall.Return([&](const Seen&) { return answer; }), cue == answer ? 1 : -1);
    }
}

TEST_P(RecallTest, OnlyAMemoryPassesTheBoundAndItScoresOne) {
  Played recall(GetParam().id);
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Seen first = recall.Draw(seed);
    const auto cue = static_cast<int32_t>(std::ranges::find(first, 1.0f) - first.begin());
    ASSERT_EQ(std::accumulate(first.begin(), first.end(), 0.0f), 1);
    ASSERT_LT(cue, 4);
    ASSERT_EQ(recall.Return([&](const Seen&) { return cue; }), 1);
  }
  // what can be seen: four cues, the flag, nothing; all 4,096 policies
  std::vector<Seen> observations(6, Seen(5, 0.0f));
  for (size_t i = 0; i < 5; ++i) observations[i][i] = 1;
  const std::vector<std::vector<double>> starts = {{0, 0}, {1, 0}, {2, 0}, {3, 0}};
  EXPECT_EQ(BestMemoryless(recall, starts, observations, 4), -0.5);
  // random answers: mean -.5, variance .75, four standard deviations of 1,000 episodes
  EXPECT_NEAR(RandomMean(recall), -0.5, 0.11);
}

TEST_P(RecallTest, CuesAreDrawnUniformly) {
  Played recall(GetParam().id);
  std::vector<int> count(4);
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    const Seen first = recall.Draw(seed);
    ++count[static_cast<size_t>(std::ranges::find(first, 1.0f) - first.begin())];
  }
  // a binomial's standard deviation is 27
  for (const int n : count) EXPECT_NEAR(n, 1000, 120);
}

enum : int32_t { kNorth, kEast, kSouth, kWest };
const Seen kSignNorth{0, 1, 1}, kSignSouth{1, 1, 0}, kCorridor{1, 0, 1}, kTurn{0, 1, 0};

TEST(TMazeTest, TheSignIsSeenAtTheStartOnly) {
  Played maze("TMaze-v0");
  EXPECT_EQ(maze.Start({0, 0}), kSignNorth);
  EXPECT_EQ(maze.Start({0, 1}), kSignSouth);
  for (int i = 1; i <= 9; ++i) {
    EXPECT_EQ(maze.Step(kEast).reward, 0);
    EXPECT_EQ(maze.seen(), kCorridor) << i;
  }
  EXPECT_EQ(maze.Step(kEast).reward, 0);
  EXPECT_EQ(maze.seen(), kTurn);
  EXPECT_EQ(maze.Step(kWest).reward, 0);
  EXPECT_EQ(maze.seen(), kCorridor);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(maze.Step(kWest).reward, 0);
  EXPECT_EQ(maze.seen(), kSignSouth);
}

TEST(TMazeTest, WallsStandStillAndCost) {
  Played maze("TMaze-v0");
  maze.Start({0, 0});
  for (const int32_t wall : {kNorth, kSouth, kWest}) {
    const StepResult step = maze.Step(wall);
    EXPECT_EQ(step.reward, -0.1);
    EXPECT_FALSE(step.terminated);
    EXPECT_EQ(maze.seen(), kSignNorth);
  }
  maze.Start({4, 0});
  for (const int32_t wall : {kNorth, kSouth}) EXPECT_EQ(maze.Step(wall).reward, -0.1);
  EXPECT_EQ(maze.seen(), kCorridor);
  maze.Start({10, 0});
  const StepResult step = maze.Step(kEast);
  EXPECT_EQ(step.reward, -0.1);
  EXPECT_FALSE(step.terminated);
  EXPECT_EQ(maze.seen(), kTurn);
}

TEST(TMazeTest, TheTurnDecides) {
  Played maze("TMaze-v0");
  for (const double south : {0.0, 1.0})
    for (const int32_t turn : {kNorth, kSouth}) {
      maze.Start({10, south});
      const StepResult step = maze.Step(turn);
      EXPECT_TRUE(step.terminated);
      EXPECT_EQ(step.reward, (turn == kSouth) == (south == 1) ? 4 : -0.1);
    }
}

TEST(TMazeTest, EndsAfterTwoHundredSteps) {
  Played maze("TMaze-v0");
  maze.Start({0, 0});
  for (int i = 1; i < 200; ++i) ASSERT_FALSE(maze.Step(i % 2 ? kEast : kWest).truncated);
  const StepResult last = maze.Step(kWest);
  EXPECT_TRUE(last.truncated);
  EXPECT_FALSE(last.terminated);
}

TEST(TMazeTest, OnlyAMemoryPassesTheBoundAndItScoresFour) {
  Played maze("TMaze-v0");
  int north = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const int32_t goal = maze.Draw(seed) == kSignNorth ? kNorth : kSouth;
    north += goal == kNorth;
    ASSERT_EQ(maze.Return([&](const Seen& seen) { return seen == kTurn ? goal : kEast; }), 4);
  }
  EXPECT_NEAR(north, 500, 64);  // four standard deviations
  // all 256 policies: right half of the time, (4 - .1) / 2
  const double best =
      BestMemoryless(maze, {{0, 0}, {0, 1}}, {kSignNorth, kSignSouth, kCorridor, kTurn}, 4);
  EXPECT_NEAR(best, 1.95, 1e-12);
  // a random walk stands still about half of the time and finds the junction late or never
  EXPECT_LT(RandomMean(maze), -3);
}

TEST(RecallTest, DrawsWhatIsSeenTheAnswerAndTheCue) {
  Played recall("Recall-v0", true);
  recall.Start({2, 0});
  EXPECT_EQ(recall.Red(20, 100), 202);
  EXPECT_EQ(recall.Red(60, 100), 255) << "no answer yet";
  EXPECT_EQ(recall.Red(100, 100), 202);
  recall.Step(1);
  EXPECT_EQ(recall.Red(20, 100), 255) << "the cue is over";
  EXPECT_EQ(recall.Red(60, 60), 30);
  EXPECT_EQ(recall.Red(100, 100), 202) << "it stays below";
  for (int i = 0; i < 10; ++i) recall.Step(1);
  EXPECT_EQ(recall.Red(20, 180), 129) << "the flag";
  recall.Start({0, 0});
  EXPECT_EQ(recall.Red(60, 60), 255) << "the answer of the last episode";
}

TEST(TMazeTest, DrawsSignGoalAndPosition) {
  Played maze("TMaze-v0", true);
  maze.Start({0, 1});
  EXPECT_EQ(maze.Red(50, 10), 202) << "the sign to the south";
  EXPECT_EQ(maze.Red(10, 10), 30);
  EXPECT_EQ(maze.Red(50, 210), 202) << "the goal";
  EXPECT_EQ(maze.Red(10, 210), 255) << "the other arm";
  EXPECT_EQ(maze.Red(30, 10), 129);
  maze.Step(1);
  EXPECT_EQ(maze.Red(50, 10), 30) << "the sign is seen at the start alone";
  EXPECT_EQ(maze.Red(30, 30), 129);
}

TEST(ForgedStateTest, NothingIsReadOutsideTheTask) {
  for (const char* id : {"Recall-v0", "RecallLong-v0", "TMaze-v0", "Catch-v0"}) {
    Played played(id);
    const size_t variables = played.environment().CurrentState().size();
    for (const double wild : {-1.0, 1e300, std::numeric_limits<double>::quiet_NaN(), 11.0, 5.0}) {
      const Seen seen = played.Start(std::vector<double>(variables, wild));
      for (const double v : played.environment().CurrentState()) EXPECT_TRUE(v >= 0 && v < 50);
      EXPECT_TRUE(std::ranges::all_of(seen, [](float v) { return v == 0 || v == 1; }));
      for (int i = 0; i < 60; ++i) played.Step(0);
    }
  }
}

}  // namespace
}  // namespace samara::memory_test
