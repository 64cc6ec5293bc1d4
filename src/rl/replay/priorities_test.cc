#include "rl/replay/priorities.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/bytes.h"
namespace samara::priorities_test {
namespace {

TEST(SumTreeTest, FindsTheItemInWhosePartANumberLies) {
  for (const uint64_t items : {1, 2, 5, 8, 13}) {
    SumTree tree(items);
    std::vector<double> weights(items);
    const CounterRng rng(items);
    for (uint64_t round = 0; round < 200; ++round) {
      const uint64_t item = rng.UniformInt(2 * round, items);
      weights[item] = round % 5 == 4 ? 0 : rng.Uniform(2 * round + 1);
      tree.Set(item, weights[item]);
      double total = 0;
      for (const double weight : weights) total += weight;
      ASSERT_NEAR(tree.total(), total, 1e-12);
      if (total == 0) continue;
      // the middle of every part, and its beginning
      double before = 0;
      for (uint64_t i = 0; i < items; ++i) {
        if (weights[i] == 0) continue;
        EXPECT_EQ(tree.Find(before + weights[i] / 2), i);
        before += weights[i];
      }
      EXPECT_GT(weights[tree.Find(0)], 0);
      EXPECT_GT(weights[tree.Find(total * 2)], 0) << "rounding ends at an item with a weight";
    }
  }
}

TEST(SumTreeTest, SumsDependOnTheWeightsAlone) {
  SumTree walked(9), fresh(9);
  const CounterRng rng(1);
  for (uint64_t i = 0; i < 500; ++i) walked.Set(i % 9, rng.Uniform(i) * 1e9);
  for (uint64_t i = 0; i < 9; ++i) walked.Set(i, 0.1 * static_cast<double>(i + 1));
  for (uint64_t i = 9; i-- > 0;) fresh.Set(i, 0.1 * static_cast<double>(i + 1));
  EXPECT_EQ(walked.total(), fresh.total());
}

// Schaul et al. 2016, equation 1 and section 3.4.
TEST(PrioritiesTest, ItemsAreDrawnByAPowerOfTheirPriorities) {
  constexpr double kAlpha = 0.7, kBeta = 0.4;
  const std::vector<double> priority = {1, 4, 0.5, 2, 0.25};
  Priorities priorities(8, kAlpha, kBeta);
  double sum = 0;
  for (size_t i = 0; i < priority.size(); ++i) {
    priorities.Set(i, priority[i]);
    sum += std::pow(priority[i], kAlpha);
  }
  constexpr int kDraws = 40'000;
  std::vector<int> counts(priority.size());
  const CounterRng rng(3);
  for (int i = 0; i < kDraws; ++i) {
    // two shards with equal parts of a minibatch and equally many items
    const auto drawn = priorities.Draw(rng, static_cast<uint64_t>(i), 5, 10, 0.5);
    ++counts.at(drawn.item);
    const double probability = 0.5 * std::pow(priority[drawn.item], kAlpha) / sum;
    ASSERT_NEAR(drawn.weight, std::pow(10 * probability, -kBeta), 1e-5);
  }
  for (size_t i = 0; i < priority.size(); ++i) {
    const double expected = std::pow(priority[i], kAlpha) / sum;
    EXPECT_NEAR(static_cast<double>(counts[i]) / kDraws, expected, 0.01) << i;
  }
}

TEST(PrioritiesTest, NewItemsAreAsUrgentAsTheMostUrgentAndNoneIsLost) {
  Priorities priorities(4, 1, 0);
  priorities.Set(0, 6);
  priorities.Set(1, 3);
  priorities.SetNew(2);
  priorities.Set(3, 0);
  int others = 0;
  std::vector<int> counts(4);
  for (uint64_t i = 0; i < 30'000; ++i) {
    const auto drawn = priorities.Draw(CounterRng(1), i, 4, 4, 1);
    EXPECT_EQ(drawn.weight, 1) << "beta is 0";
    ++counts.at(drawn.item);
    others += drawn.item == 3;
  }
  EXPECT_NEAR(counts[2], counts[0], 600);
  EXPECT_NEAR(counts[1] * 2, counts[0], 900);
  EXPECT_LT(others, 3) << "an item without an error is drawn hardly ever";
  // what is not finite has no part
  priorities.Set(0, std::numeric_limits<double>::quiet_NaN());
  priorities.Set(1, std::numeric_limits<double>::infinity());
  for (uint64_t i = 0; i < 1000; ++i)
    EXPECT_EQ(priorities.Draw(CounterRng(2), i, 4, 4, 1).item, 2u);
}

TEST(PrioritiesTest, ARestoredOneDrawsTheSame) {
  Priorities before(6, 0.5, 1), after(6, 0.5, 1), uniform(6, 0, 0);
  for (uint64_t i = 0; i < 5; ++i) before.Set(i, static_cast<double>(1 + i * i));
  ASSERT_TRUE(after.Restore(before.Save(5), 5).ok());
  before.SetNew(5), after.SetNew(5);
  for (uint64_t i = 0; i < 100; ++i) {
    const auto a = before.Draw(CounterRng(4), i, 6, 6, 1),
               b = after.Draw(CounterRng(4), i, 6, 6, 1);
    EXPECT_EQ(a.item, b.item);
    EXPECT_EQ(a.weight, b.weight);
  }
  // over a fuller one
  Priorities fuller(6, 0.5, 1);
  for (uint64_t i = 0; i < 6; ++i) fuller.Set(i, 100);
  ASSERT_TRUE(fuller.Restore(before.Save(3), 3).ok());
  for (uint64_t i = 0; i < 200; ++i) EXPECT_LT(fuller.Draw(CounterRng(4), i, 3, 3, 1).item, 3u);
  EXPECT_EQ(after.Restore(before.Save(5), 6).code(), Code::kBadData);
  EXPECT_EQ(after.Restore(before.Save(5).substr(3), 5).code(), Code::kBadData);
  EXPECT_EQ(uniform.Restore(before.Save(5), 5).code(), Code::kBadData);
  EXPECT_TRUE(uniform.Restore(uniform.Save(5), 5).ok());
}

TEST(PrioritiesTest, WeightsThatNoPriorityHasAreRefused) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const auto restore = [](double largest, std::vector<double> weights, const char* rest = "") {
    Priorities priorities(4, 0.5, 1);
    return priorities
        .Restore(ByteWriter().Put(largest).PutVector(weights).Take() + rest, weights.size())
        .message();
  };
  const std::string refused = "the saved priorities have another shape than this run's";
  EXPECT_EQ(restore(2, {1, 1.5}), "");
  EXPECT_EQ(restore(1, {}), "");
  for (const double largest : {0.0, -1.0, inf, nan}) EXPECT_EQ(restore(largest, {1}), refused);
  for (const double weight : {0.0, -1.0, 1e300, inf, nan})
    EXPECT_EQ(restore(2, {1, weight}), refused) << weight;
  EXPECT_EQ(restore(2, {1}, "x"), refused);
  Priorities odd(4, 0.5, 1);
  EXPECT_EQ(odd.Restore(ByteWriter().Put(1.0).PutBytes("1234567").Take(), 0).message(), refused);
}

}  // namespace
}  // namespace samara::priorities_test
