// Shaping against definitions, one value at a time.
#include "evo/algorithms/shaping.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/rng.h"

namespace samara::shaping_test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Shaping kAll[] = {Shaping::kCentredRank, Shaping::kSign, Shaping::kCentredSignRank,
                            Shaping::kNes, Shaping::kZScore};

std::vector<double> Draws(uint64_t key, size_t n, uint64_t values) {
  std::vector<double> fitness;
  const CounterRng rng(key);
  for (uint64_t i = 0; i < n; ++i)
    fitness.push_back(static_cast<double>(rng.UniformInt(i, values)));
  return fitness;
}

TEST(CentredRanksTest, TiesShareTheMeanOfTheirRanksAndNanIsWorst) {
  // average ranks as scipy.stats.rankdata has them: 3, 4.5, 2, 4.5, 1
  EXPECT_EQ(CentredRanks(std::vector<double>{5, 7, -1, 7, kNan}),
            (std::vector<double>{0, 0.375, -0.25, 0.375, -0.5}));
  EXPECT_EQ(CentredRanks(std::vector<double>{2, 2, 2}), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(CentredRanks(std::vector<double>{1, 0}), (std::vector<double>{0.5, -0.5}));
}

// The definition, one value at a time: ranks below and half of the ties.
TEST(CentredRanksTest, AgreesWithCounting) {
  const std::vector<double> fitness = Draws(5, 101, 20), ranks = CentredRanks(fitness);
  for (size_t i = 0; i < fitness.size(); ++i) {
    double below = 0, equal = 0;
    for (const double f : fitness) below += f < fitness[i], equal += f == fitness[i];
    EXPECT_NEAR(ranks[i], (below + (equal - 1) / 2) / 100 - 0.5, 1e-15);
  }
}

TEST(NesUtilitiesTest, AgreesWithTheFormula) {
  // 1 best of 4: ln 3 - ln k, cut off at 0
  const double a = std::log(3), b = std::log(1.5), sum = a + b;
  const std::vector<double> u = NesUtilities(std::vector<double>{10, 40, 20, 30});
  EXPECT_NEAR(u[1], a / sum - 0.25, 1e-15);
  EXPECT_NEAR(u[3], b / sum - 0.25, 1e-15);
  EXPECT_NEAR(u[2], -0.25, 1e-15);
  EXPECT_NEAR(u[0], -0.25, 1e-15);
  double total = 0;
  for (const double value : NesUtilities(Draws(6, 51, 9))) total += value;
  EXPECT_NEAR(total, 0, 1e-13);
}

TEST(ZScoresTest, HasMeanZeroAndDeviationOne) {
  const std::vector<double> z = ZScores(std::vector<double>{1, 2, 3, 4, 10});
  double mean = 0, squares = 0;
  for (const double value : z) mean += value / 5, squares += value * value / 5;
  EXPECT_NEAR(mean, 0, 1e-15);
  EXPECT_NEAR(squares, 1, 1e-15);
  EXPECT_NEAR(z[4], 6 / std::sqrt(10.0), 1e-12);  // deviation of 1, 2, 3, 4, 10 is sqrt(10)
  EXPECT_EQ(ZScores(std::vector<double>{3, 3, 3}), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(ZScores(std::vector<double>{kNan, kNan}), (std::vector<double>{0, 0}));
}

TEST(ShapingTest, TiesAreEqualAndNumbersFinite) {
  for (const Shaping shaping : kAll) {
    if (shaping == Shaping::kSign) continue;  // as it is
    const std::vector<double> u =
        Shape(shaping, std::vector<double>{4, kNan, 9, 4, kNan, -kInfinity, 9});
    EXPECT_EQ(u[0], u[3]);
    EXPECT_EQ(u[1], u[4]);
    EXPECT_EQ(u[2], u[6]);
    EXPECT_GT(u[2], u[0]);
    EXPECT_GE(u[0], u[1]);
    for (const double value : u) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(ShapingTest, EveryKindHasADefinition) {
  const std::vector<double> fitness = Draws(7, 12, 5);
  EXPECT_EQ(Shape(Shaping::kCentredRank, fitness), CentredRanks(fitness));
  EXPECT_EQ(Shape(Shaping::kCentredSignRank, fitness), CentredRanks(fitness));
  EXPECT_EQ(Shape(Shaping::kNes, fitness), NesUtilities(fitness));
  EXPECT_EQ(Shape(Shaping::kZScore, fitness), ZScores(fitness));
  EXPECT_EQ(Shape(Shaping::kSign, fitness), fitness);
  for (const Shaping shaping : kAll)
    EXPECT_EQ(UsesSigns(shaping),
              shaping == Shaping::kSign || shaping == Shaping::kCentredSignRank);
}

}  // namespace
}  // namespace samara::shaping_test
