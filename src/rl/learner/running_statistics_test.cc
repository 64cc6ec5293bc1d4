#include "rl/learner/running_statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/bytes.h"
#include "core/rng.h"

namespace samara::running_statistics_test {
namespace {

// 1,000 rows of three numbers of unlike size: around 0, around 1,000 with a deviation of 0.5, and
// constant.
std::vector<float> Rows() {
  std::vector<float> rows;
  const CounterRng rng(3);
  for (uint64_t i = 0; i < 1000; ++i) {
    rows.push_back(static_cast<float>(10 * rng.Normal(2 * i)));
    rows.push_back(static_cast<float>(1000 + 0.5 * rng.Normal(2 * i + 1)));
    rows.push_back(7);
  }
  return rows;
}

struct Expected {
  long double mean = 0, deviation = 0;
};
Expected Of(const std::vector<float>& rows, size_t column) {
  Expected e;
  const size_t n = rows.size() / 3;
  for (size_t i = 0; i < n; ++i) e.mean += rows[3 * i + column];
  e.mean /= static_cast<long double>(n);
  for (size_t i = 0; i < n; ++i) {
    const long double d = rows[3 * i + column] - e.mean;
    e.deviation += d * d;
  }
  e.deviation = std::sqrt(e.deviation / static_cast<long double>(n));
  return e;
}

// Two passes in long double, against batches of 50 rows, each of two shards.
TEST(RunningStatisticsTest, BatchesMakeTheMeanAndDeviationOfAllRows) {
  const std::vector<float> rows = Rows();
  RunningStatistics statistics(3);
  for (size_t at = 0; at < rows.size(); at += 150) {
    const auto batch = std::span(rows).subspan(at, 150);
    std::vector<float> sum = statistics.Moments(batch.first(60));
    const std::vector<float> more = statistics.Moments(batch.subspan(60));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
    statistics.Merge(sum);
  }
  EXPECT_EQ(statistics.count(), 1000);
  for (size_t i = 0; i < 3; ++i) {
    const Expected e = Of(rows, i);
    EXPECT_NEAR(statistics.Mean(i), static_cast<double>(e.mean), 1e-3) << i;
    EXPECT_NEAR(statistics.Deviation(i),
                std::max(static_cast<double>(e.deviation), RunningStatistics::kDeviationFloor),
                i == 1 ? 0.03 : 1e-3)
        << i;
  }
}

TEST(RunningStatisticsTest, NothingSeenIsTheIdentityAndWhatIsNotFiniteIsNotSeen) {
  RunningStatistics statistics(2);
  EXPECT_EQ(statistics.Mean(1), 0);
  EXPECT_EQ(statistics.Deviation(1), 1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  statistics.Merge(statistics.Moments(std::vector<float>{1, nan}));
  EXPECT_EQ(statistics.count(), 0);
  EXPECT_EQ(statistics.Deviation(0), 1);
  statistics.Merge(statistics.Moments(std::vector<float>{1, nan, 5, 6, 7, 6}));
  EXPECT_EQ(statistics.count(), 2);
  EXPECT_EQ(statistics.Mean(0), 6);
  EXPECT_NEAR(statistics.Deviation(0), 1, 1e-6);
}

TEST(RunningStatisticsTest, ASavedOneGoesOnWithTheSameBits) {
  const std::vector<float> rows = Rows();
  const auto half = std::span(rows).first(1500), rest = std::span(rows).subspan(1500);
  RunningStatistics statistics(3), other(3);
  statistics.Merge(statistics.Moments(half));
  const std::string saved = statistics.Save();
  ASSERT_TRUE(other.Restore(saved).ok());
  statistics.Merge(statistics.Moments(rest));
  other.Merge(other.Moments(rest));
  EXPECT_EQ(statistics.Save(), other.Save());
  EXPECT_EQ(RunningStatistics(2).Restore(saved).code(), Code::kBadData);
  for (const size_t size : {size_t{0}, size_t{7}, saved.size() - 1})
    EXPECT_EQ(other.Restore(saved.substr(0, size)).code(), Code::kBadData) << size;
  EXPECT_EQ(other.Restore(saved + "x").code(), Code::kBadData);
  const std::vector<double> three(3), two(2);
  for (const auto& [mean, squares] : {std::pair(three, two), {two, three}})
    EXPECT_EQ(
        other.Restore(ByteWriter().Put(1.0).PutVector(mean).PutVector(squares).Take()).message(),
        "the saved statistics have another size than this run's");
  EXPECT_EQ(statistics.Save(), other.Save()) << "refused, not half taken";
}

TEST(RunningStatisticsTest, WhatCannotBeAMeanOrASumOfSquaresIsRefused) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const auto refused = [](double count, double mean, double square) {
    RunningStatistics statistics(1);
    const Status status = statistics.Restore(ByteWriter()
                                                 .Put(count)
                                                 .PutVector(std::vector<double>{mean})
                                                 .PutVector(std::vector<double>{square})
                                                 .Take());
    EXPECT_EQ(statistics.count(), status.ok() ? count : 0);
    return status.code() == Code::kBadData &&
           status.message() == "the saved statistics are those of no numbers";
  };
  EXPECT_FALSE(refused(2, -1, 3));
  for (const double count : {-1.0, inf, nan}) EXPECT_TRUE(refused(count, 0, 0));
  for (const double mean : {inf, -inf, nan}) EXPECT_TRUE(refused(2, mean, 0));
  for (const double square : {-1.0, inf, nan}) EXPECT_TRUE(refused(2, 0, square));
}

}  // namespace
}  // namespace samara::running_statistics_test
