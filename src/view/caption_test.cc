#include "view/caption.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace samara {
namespace {

// The picture as text: '#' light, '.' dark, ' ' as it was.
std::vector<std::string> Drawn(int height, int width, std::string_view text) {
  std::vector<uint8_t> rgb(size_t{3} * height * width, 100);
  DrawCaption(rgb, height, width, text);
  std::vector<std::string> rows;
  for (int y = 0; y < height; ++y) {
    std::string& row = rows.emplace_back();
    for (int x = 0; x < width; ++x) {
      const uint8_t level = rgb[3 * (static_cast<size_t>(y) * width + x)];
      row += level > 200 ? '#' : level < 50 ? '.' : ' ';
    }
  }
  return rows;
}

TEST(CaptionTest, StandsInTheLowerLeftCorner) {
  const auto rows = Drawn(8, 12, "74");
  EXPECT_EQ(rows[0], std::string(12, ' '));
  EXPECT_EQ(rows[1], ".........   ");
  EXPECT_EQ(rows[2], ".###.#.#.   ");
  EXPECT_EQ(rows[3], "...#.#.#.   ");
  EXPECT_EQ(rows[4], "...#.###.   ");
  EXPECT_EQ(rows[5], "..#....#.   ");
  EXPECT_EQ(rows[6], "..#....#.   ");
  EXPECT_EQ(rows[7], ".........   ");
}

TEST(CaptionTest, GrowsWithThePictureAndStaysInIt) {
  const auto large = Drawn(240, 300, "1");
  EXPECT_EQ(large[225].substr(0, 11), "           ");
  EXPECT_EQ(large[226].substr(0, 11), ".......... ");
  EXPECT_EQ(large[228].substr(0, 10), "....##....");
  EXPECT_EQ(Drawn(3, 4, "123").size(), 3U);  // smaller than a letter: cut off
  EXPECT_EQ(Drawn(240, 20, "SCORE")[239].substr(0, 20), std::string(20, '.'));
}

TEST(CaptionTest, SmallLettersAreDrawnAsCapitals) {
  EXPECT_EQ(Drawn(7, 25, "2e-05"), Drawn(7, 25, "2E-05"));
  EXPECT_NE(Drawn(7, 25, "2e-05"), Drawn(7, 25, "2 -05"));
}

TEST(CaptionTest, WhatHasNoGlyphIsAGap) {
  for (const auto& row : Drawn(7, 5, "\n")) EXPECT_EQ(row.find('#'), std::string::npos);
}

}  // namespace
}  // namespace samara
