#include "view/trend.h"

#include <gtest/gtest.h>

#include <cmath>

namespace samara {
namespace {

size_t Blocks(const std::string& line) { return line.size() / std::string("\u2581").size(); }

TEST(TrendTest, GoesFromTheLeastToTheLargest) {
  Trend trend;
  EXPECT_EQ(trend.Sparkline(), "");
  for (int i = 0; i < 8; ++i) {
    trend.Add(-30 + 10 * i);
    trend.Add(std::nan(""));
  }
  EXPECT_EQ(trend.Sparkline(), "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588");
}

TEST(TrendTest, ShowsAScoreThatStaysWhereItIs) {
  Trend trend;
  for (int i = 0; i < 3; ++i) trend.Add(7);
  EXPECT_EQ(trend.Sparkline(), "\u2585\u2585\u2585");
}

// Whatever its length, a course that rises and falls is shown whole.
TEST(TrendTest, JoinsNeighboursOfALongCourse) {
  for (const int length : {48, 49, 96, 97, 1000, 5000}) {
    Trend trend;
    for (int i = 0; i < length; ++i) trend.Add(std::min(i, length - i));
    const std::string line = trend.Sparkline();
    ASSERT_LE(Blocks(line), Trend::kPoints) << length;
    ASSERT_GE(Blocks(line), Trend::kPoints / 2) << length;
    EXPECT_TRUE(line.starts_with("\u2581") || line.starts_with("\u2582")) << length;
    const size_t top = line.find("\u2588");
    ASSERT_NE(top, std::string::npos) << length;
    EXPECT_NEAR(static_cast<double>(top) / static_cast<double>(line.size()), 0.5, 0.1) << length;
  }
}

TEST(TrendTest, EachMeanIsOfAsManySamples) {
  Trend trend;
  // 48 means of one sample become 24 of two; then there is one more
  for (int i = 0; i < 48; ++i) trend.Add(i % 2);
  for (int i = 0; i < 2; ++i) trend.Add(1);
  const std::string line = trend.Sparkline();
  EXPECT_EQ(Blocks(line), 25u);
  EXPECT_TRUE(line.ends_with("\u2581\u2588"));
}

}  // namespace
}  // namespace samara
