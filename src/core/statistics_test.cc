// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

namespace samara {
namespace {

const std::vector<double> kTen = {3.5, -1.25, 8.0, 2.0, 2.0, 11.5, 0.75, -4.0, 6.25, 5.0};

std::vector<double> FortySquares() {
  std::vector<double> y;
  for (int i = 1; i <= 40; ++i) y.push_back(i * i / 10.0);
  return y;
}

// NumPy 2: np.mean, np.std, np.median, np.quantile of the same ten numbers
TEST(StatisticsTest, AgreesWithNumpy) {
  EXPECT_DOUBLE_EQ(Mean(kTen), 3.375);
  EXPECT_DOUBLE_EQ(Std(kTen), 4.29861896427213);
  EXPECT_DOUBLE_EQ(Median(kTen), 2.75);
  EXPECT_DOUBLE_EQ(Quantile(kTen, 0), -4.0);
  EXPECT_DOUBLE_EQ(Quantile(kTen, 0.025), -3.38125);
  EXPECT_DOUBLE_EQ(Quantile(kTen, 0.25), 1.0625);
  EXPECT_DOUBLE_EQ(Quantile(kTen, 0.8), 6.6);
  EXPECT_DOUBLE_EQ(Quantile(kTen, 0.975), 10.7125);
  EXPECT_DOUBLE_EQ(Quantile(kTen, 1), 11.5);
}

// sorted: -4 -1.25 | .75 2 2 3.5 5 6.25 | 8 11.5; two of ten are cut at each end: 19.5 / 6
TEST(StatisticsTest, InterquartileMeanByHand) {
  EXPECT_DOUBLE_EQ(InterquartileMean(kTen), 3.25);
  EXPECT_DOUBLE_EQ(InterquartileMean(std::vector<double>{7, 1, 100}), 36);     // nothing is cut
  EXPECT_DOUBLE_EQ(InterquartileMean(std::vector<double>{1, 2, 4, 1000}), 3);  // one each
}

TEST(StatisticsTest, RangeLeavesOutWhatIsNoNumber) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> values = {kNan, 3, -2, kNan, 7, 0}, none = {kNan, kNan};
  EXPECT_EQ(RangeOf(values), std::pair(-2.0, 7.0));
  EXPECT_EQ(RangeOf(std::span(values).subspan(1, 1)), std::pair(3.0, 3.0));
  EXPECT_TRUE(std::isnan(RangeOf(none).first) && std::isnan(RangeOf({}).second));
}

TEST(StatisticsTest, EdgesOfSize) {
  const std::vector<double> none, one = {5};
  for (auto f : {Mean, Std, Median, InterquartileMean}) EXPECT_TRUE(std::isnan(f(none)));
  EXPECT_TRUE(std::isnan(Quantile(none, 0.5)));
  EXPECT_TRUE(std::isnan(BootstrapInterval(none, Mean).low));
  EXPECT_DOUBLE_EQ(Median(one), 5);
  EXPECT_DOUBLE_EQ(Std(one), 0);
  const Interval interval = BootstrapInterval(one, Mean);
  EXPECT_DOUBLE_EQ(interval.low, 5);
  EXPECT_DOUBLE_EQ(interval.high, 5);
}

// The limits below are NumPy's percentile bootstrap of the same data with 400,000 resamples; the
// tolerances are four standard deviations of a limit estimated from 10,000.
TEST(StatisticsTest, BootstrapAgreesWithNumpy) {
  const auto y = FortySquares();
  const Interval mean = BootstrapInterval(y, Mean);
  EXPECT_NEAR(mean.low, 40.58, 0.76);
  EXPECT_NEAR(mean.high, 70.80, 0.81);
  const Interval iqm = BootstrapInterval(y, InterquartileMean);
  EXPECT_NEAR(iqm.low, 27.09, 0.86);
  EXPECT_NEAR(iqm.high, 68.05, 1.27);
  const Interval median = BootstrapInterval(y, Median);
  EXPECT_NEAR(median.low, 21.05, 0.95);
  EXPECT_NEAR(median.high, 70.25, 2.0);
}

// Resampling within strata keeps ten small and five large values in every sample; pooled resampling
// of the same fifteen values would give [18.1, 66.1].
TEST(StatisticsTest, StrataAreResampledWithinThemselves) {
  std::vector<std::vector<double>> strata(2);
  for (int i = 1; i <= 10; ++i) strata[0].push_back(i);
  for (int i = 0; i < 5; ++i) strata[1].push_back(100 + 4 * i);
  const Interval interval = StratifiedBootstrapInterval(strata, Mean);
  EXPECT_NEAR(interval.low, 37.667, 0.14);
  EXPECT_NEAR(interval.high, 41.667, 0.16);
}

TEST(StatisticsTest, BootstrapReproducesAndDependsOnSeedAndConfidence) {
  const auto y = FortySquares();
  const Interval a = BootstrapInterval(y, Mean, {.resamples = 500, .seed = 1});
  const Interval b = BootstrapInterval(y, Mean, {.resamples = 500, .seed = 1});
  const Interval c = BootstrapInterval(y, Mean, {.resamples = 500, .seed = 2});
  const Interval d = BootstrapInterval(y, Mean, {.resamples = 500, .confidence = 0.5, .seed = 1});
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
  EXPECT_NE(a.low, c.low);
  EXPECT_GT(d.low, a.low);
  EXPECT_LT(d.high, a.high);
}

TEST(StatisticsTest, BootstrapLeavesNanOut) {
  std::vector<double> y = FortySquares();
  const Interval clean = BootstrapInterval(y, Mean, {.resamples = 200});
  y.insert(y.begin() + 7, std::nan(""));
  const Interval with_nan = BootstrapInterval(y, Mean, {.resamples = 200});
  EXPECT_EQ(clean.low, with_nan.low);
  EXPECT_EQ(clean.high, with_nan.high);
}

}  // namespace
}  // namespace samara
