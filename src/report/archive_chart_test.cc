#include "report/archive_chart.h"

#include <gtest/gtest.h>

#include "report/map_chart.h"

namespace samara {
namespace {

size_t CountOf(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(ArchiveSvgTest, EachSolutionIsARectangleAtItsCell) {
  EnvironmentMap map;
  map.low = {0, 0}, map.high = {2, 1};
  map.walls.push_back({{0, 0}, {2, 1}});
  const std::vector<ArchivedSolution> held = {{0, 1.5}, {3, 9.5}};
  const std::string svg = ArchiveSvg(map, 2, held, "<run>");
  EXPECT_EQ(CountOf(svg, "<title>1.5</title>"), 1U);
  // 612 pixels for two columns, 306 for two rows: the first cell is below on the left, the last
  // above on the right
  EXPECT_NE(
      svg.find("x=\"14.0\" y=\"209.0\" width=\"306.0\" height=\"153.0\" fill=\"" + RampColour(0)),
      svg.npos)
      << svg;
  EXPECT_NE(
      svg.find("x=\"320.0\" y=\"56.0\" width=\"306.0\" height=\"153.0\" fill=\"" + RampColour(1)),
      svg.npos);
  EXPECT_EQ(svg.find("<run>"), svg.npos);
  map.y_down = true;
  EXPECT_NE(ArchiveSvg(map, 2, held, "run").find("x=\"14.0\" y=\"56.0\" width=\"306.0\""),
            svg.npos);
  EXPECT_EQ(CountOf(ArchiveSvg(map, 2, {}, "run"), "<title>1.5"), 0U);
}

}  // namespace
}  // namespace samara
