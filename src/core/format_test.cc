// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/format.h"

#include <gtest/gtest.h>

#include <cmath>

namespace samara {
namespace {

TEST(TextTest, Grouped) {
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(-999), "-999");
  EXPECT_EQ(Grouped(-1000), "-1,000");
  EXPECT_EQ(Grouped(1234567.25, 2), "1,234,567.25");
  EXPECT_EQ(Grouped(std::nan("")), "\u2013");
}

TEST(TextTest, CountText) {
  EXPECT_EQ(CountText(0, "seed"), "0 seeds");
  EXPECT_EQ(CountText(1, "episode"), "1 episode");
  EXPECT_EQ(CountText(2000, "frame"), "2,000 frames");
}

TEST(TextTest, ShortBytes) {
  EXPECT_EQ(ShortBytes(950), "950B");
  EXPECT_EQ(ShortBytes(39'600'000), "39.6MB");
  EXPECT_EQ(ShortBytes(3'070'000'000), "3.07GB");
}

TEST(TextTest, ShortNumber) {
  EXPECT_EQ(ShortNumber(0), "0");
  EXPECT_EQ(ShortNumber(950), "950");
  EXPECT_EQ(ShortNumber(0.5), "0.50");
  EXPECT_EQ(ShortNumber(999.7), "1.00k");
  EXPECT_EQ(ShortNumber(12'345), "12.3k");
  EXPECT_EQ(ShortNumber(999'600), "1.00M");
  EXPECT_EQ(ShortNumber(-3'210'000), "-3.21M");
  EXPECT_EQ(ShortNumber(1e9), "1.00B");
}

TEST(TextTest, Score) {
  EXPECT_EQ(ScoreText(65.2), "65.2");
  EXPECT_EQ(ScoreText(500), "500");
  EXPECT_EQ(ScoreText(1230.4), "1,230");
  EXPECT_EQ(ScoreText(-20.7), "-20.7");
  EXPECT_EQ(ScoreText(0.03125), "0.0312");
}

TEST(TextTest, Duration) {
  EXPECT_EQ(DurationText(0), "0 s");
  EXPECT_EQ(DurationText(0.0382), "0.038 s");
  EXPECT_EQ(DurationText(0.0996), "0.1 s");
  EXPECT_EQ(DurationText(0.44), "0.4 s");
  EXPECT_EQ(DurationText(0.97), "1 s");
  EXPECT_EQ(DurationText(45.4), "45 s");
  EXPECT_EQ(DurationText(192), "3:12 min");
  EXPECT_EQ(DurationText(7509), "2:05:09 h");
  EXPECT_EQ(DurationText(3 * 86400 + 4 * 3600 + 5), "3 d 4 h");
  EXPECT_EQ(DurationText(-1), "\u2013");
}

TEST(TextTest, EscapeHtmlLeavesNoMarkup) {
  EXPECT_EQ(EscapeHtml("<b a=\"1\" c='2'>&\x1b"),
            "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;\uFFFD");
}

}  // namespace
}  // namespace samara
