#include "report/map_chart.h"

#include <gtest/gtest.h>

#include <cmath>

namespace samara {
namespace {

// 100 x 100 and one wall; 612 pixels wide, from (14, 56) on.
EnvironmentMap Plan() {
  return {.walls = {{{0, 50}, {100, 50}}}, .low = {0, 0}, .high = {100, 100}, .start = {10, 10}};
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(MapChartTest, WallsAndEndPointsHaveTheirPlaces) {
  const EndPoints ends[] = {{1, {0, 0, 100, 100}}, {2, {50, 25}}};
  EnvironmentMap plan = Plan();
  const std::string up = MapSvg(plan, ends, "maze");
  EXPECT_NE(up.find("M14.0 362.0L626.0 362.0"), up.npos) << up;  // the wall, in the middle
  EXPECT_NE(up.find("M14.0 668.0h0"), up.npos) << up;            // (0, 0) is below
  EXPECT_NE(up.find("M320.0 515.0h0"), up.npos) << up;
  plan.y_down = true;
  EXPECT_NE(MapSvg(plan, ends, "maze").find("M14.0 56.0h0"), up.npos);
}

TEST(MapChartTest, GenerationsHaveColoursOfTheirOwn) {
  const EndPoints ends[] = {{3, {1, 1}}, {7, {2, 2}}};
  const std::string svg = MapSvg(Plan(), ends, "maze");
  EXPECT_NE(svg.find("stroke:#7e40be"), svg.npos);
  EXPECT_NE(svg.find("stroke:#e8781e"), svg.npos);
  EXPECT_NE(svg.find("generation 3"), svg.npos);
  EXPECT_NE(svg.find(">7</text>"), svg.npos);
}

TEST(MapChartTest, PointsOutsideWidenItAndWildOnesAreLeftOut) {
  const EndPoints ends[] = {{1, {150, 50, 1e9F, 50, NAN, 3}}};
  const std::string svg = MapSvg(Plan(), ends, "maze");
  EXPECT_NE(svg.find("M14.0 209.0L320.0 209.0"), svg.npos) << svg;  // twice as wide
  EXPECT_EQ(Count(svg, "h0"), 1u);
}

TEST(MapChartTest, ManyPointsAreThinnedOutAndNoneIsFine) {
  const EndPoints many[] = {{1, std::vector<float>(40000, 5)}};
  const size_t drawn = Count(MapSvg(Plan(), many, "maze"), "h0");
  EXPECT_GT(drawn, 3000u);
  EXPECT_LE(drawn, 6000u);
  EXPECT_EQ(Count(MapSvg(Plan(), {}, "<maze>"), "h0"), 0u);
  EXPECT_EQ(MapSvg(Plan(), {}, "<maze>").find("<maze>"), std::string::npos);
}

}  // namespace
}  // namespace samara
