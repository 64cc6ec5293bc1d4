#include "report/plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <regex>

namespace samara {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Python's own XML parser must accept what we write.
bool IsXml(const std::string& text) {
  const std::string file = testing::TempDir() + "/plot_test.svg";
  std::ofstream(file) << text;
  const std::string command =
      "python3 -c 'import sys,xml.dom.minidom as m; m.parse(sys.argv[1])' '" + file + "'";
  return std::system(command.c_str()) == 0;
}

std::string PathData(const std::string& svg, const std::string& css_class) {
  std::smatch match;
  std::regex pattern("<path d=\"([^\"]*)\" class=\"" + css_class + "\"[^/>]*><title>");
  return std::regex_search(svg, match, pattern) ? match[1].str() : "";
}

TEST(PlotTest, NiceTicksAreRound) {
  EXPECT_EQ(NiceTicks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(NiceTicks(-3, 7, 4), (std::vector<double>{0, 5}));
  EXPECT_EQ(NiceTicks(12, 950, 5), (std::vector<double>{200, 400, 600, 800}));
  const auto small = NiceTicks(0.1, 0.34, 5);
  ASSERT_EQ(small.size(), 5u);
  EXPECT_DOUBLE_EQ(small[0], 0.1);
  EXPECT_DOUBLE_EQ(small[4], 0.3);
}

// x: 0..100 with 2 % of room over [62, 624] pixels: 0 lies at 62 + 2/104 * 562 = 72.8, 100 at 613.2
TEST(PlotTest, LinesGoThroughTheirPoints) {
  LineChart chart;
  chart.series.push_back({.name = "a", .x = {0, 100}, .y = {1, 2}});
  const std::string path = PathData(Svg(chart), "line c0");
  EXPECT_EQ(path.rfind("M72.8 ", 0), 0u) << path;
  EXPECT_NE(path.find("L613.2 "), std::string::npos) << path;
}

TEST(PlotTest, WideNumbersPushTheFrameToTheRight) {
  LineChart chart;
  chart.series.push_back({.name = "a", .x = {0, 1}, .y = {0.00098, 0.00102}});
  // "0.00099" to "0.00102": seven characters of 7.2 pixels, after 28 for the label
  EXPECT_NE(Svg(chart).find("<path d=\"M78.4 "), std::string::npos) << Svg(chart);
}

TEST(PlotTest, MissingValuesBreakTheLine) {
  LineChart chart;
  chart.series.push_back({.name = "a", .x = {0, 1, 2, 3, 4}, .y = {1, 2, kNan, 3, 4}});
  const std::string path = PathData(Svg(chart), "line c0");
  EXPECT_EQ(std::count(path.begin(), path.end(), 'M'), 2) << path;
  EXPECT_EQ(std::count(path.begin(), path.end(), 'L'), 2) << path;
}

// 100 values alternate between 0 and 12, 30 of them missing: a twentieth of 70 is 3.
TEST(PlotTest, AMovingMeanIsDrawnOverItsThinValues) {
  Series series{.name = "a"};
  for (int i = 0; i < 100; ++i) {
    series.x.push_back(i);
    series.y.push_back(i >= 70 ? kNan : 12.0 * (i % 2));
  }
  const Series smooth = Smoothed(series);
  EXPECT_EQ(smooth.window, 3u);
  const std::string svg = Svg(LineChart{.x_label = "update", .series = {smooth}});
  EXPECT_NE(svg.find("update; means of 3 values over thin lines"), std::string::npos);
  // y: 0..12 with 6 % of room over the frame from 294 up to 36 pixels: v lies at
  // 294 - (v + 0.72) / 13.44 * 258; the means are 6 (two values), 4, 8, 4, ..., 6 (two values)
  const auto heights = [](const std::string& path) {
    std::vector<std::string> found;
    const std::regex pattern("[ML][0-9.]+ ([0-9.]+)");
    for (std::sregex_iterator it(path.begin(), path.end(), pattern), end; it != end; ++it)
      found.push_back((*it)[1]);
    return found;
  };
  const auto line = heights(PathData(svg, "line c0"));
  ASSERT_EQ(line.size(), 70u) << svg;
  EXPECT_EQ(line[0], "165.0");
  EXPECT_EQ(line[1], "203.4");
  EXPECT_EQ(line[2], "126.6");
  EXPECT_EQ(line[69], "165.0");
  std::smatch thin;
  ASSERT_TRUE(std::regex_search(svg, thin, std::regex("d=\"([^\"]*)\" class=\"thin c0\"/>")));
  const auto values = heights(thin[1]);
  ASSERT_EQ(values.size(), 70u);
  EXPECT_EQ(values[0], "280.2");
  EXPECT_EQ(values[1], "49.8");
}

TEST(PlotTest, FewValuesAndPointsAreNotSmoothed) {
  std::vector<double> many(100, 1), few(40, 1);
  EXPECT_EQ(Smoothed({.x = few, .y = few}).window, 0u);
  EXPECT_EQ(Smoothed({.x = many, .y = many, .stroke = Stroke::kPoints}).window, 0u);
  EXPECT_EQ(Smoothed({.x = many, .y = many}).window, 5u);
  const std::string svg = Svg(LineChart{.series = {{.x = few, .y = few}}});
  EXPECT_EQ(svg.find("class=\"thin"), std::string::npos);
}

// y: 0..100 with 6 % of room over the frame from 294 up to 36 pixels: 0 lies at 294 - 6/112 * 258
TEST(PlotTest, AReferenceLiesUnderTheSeriesAndIsNamedInTheLegend) {
  LineChart chart{.references = {{"random", 0}, {"gone", kNan}}};
  chart.series.push_back({.name = "a", .x = {0, 100}, .y = {50, 100}});
  const std::string svg = Svg(chart);
  const size_t name = svg.find(">random 0<"), axis = svg.find("class=\"axis\""),
               line = svg.find("M62.0 280.2H624.0\" class=\"reference\""),
               series = svg.find("class=\"line c0\"><title>");
  ASSERT_NE(series, std::string::npos) << svg;
  EXPECT_TRUE(name < axis && axis < line && line < series) << svg;
  EXPECT_EQ(svg.find("gone"), std::string::npos);
}

TEST(PlotTest, NothingOrOnePointIsFine) {
  LineChart chart;
  chart.title = "empty";
  EXPECT_NE(Svg(chart).find("no data yet"), std::string::npos);
  chart.series.push_back({.name = "one", .x = {5}, .y = {7}});
  chart.series.push_back({.name = "gone", .x = {5, 6}, .y = {kNan, kNan}});
  const std::string svg = Svg(chart);
  EXPECT_EQ(svg.find("no data yet"), std::string::npos);
  EXPECT_EQ(svg.find(">gone<"), std::string::npos) << "a series without values has no legend";
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(PlotTest, EveryChartIsWellFormedXml) {
  const std::string nasty = "</text><script>&\"'\x01";
  LineChart lines{.title = nasty, .x_label = nasty, .y_label = nasty, .references = {{nasty, 3}}};
  lines.series.push_back(
      {.name = nasty, .x = {1, 2}, .y = {1, kNan}, .low = {0, 0}, .high = {2, 2}});
  StackedBars bars{.title = nasty, .parts = {nasty, "b"}, .bars = {{nasty, {1, 2}}}, .unit = nasty};
  Histogram histogram{.title = nasty, .x_label = nasty, .sets = {{nasty, {1, 2, 2, 3, kNan}}}};
  for (const std::string& svg :
       {Svg(lines, SvgUse::kFile), Svg(bars, SvgUse::kFile), Svg(histogram, SvgUse::kFile),
        Svg(BarChart{.title = nasty, .x_label = nasty, .bars = {{nasty, 2}, {"b", kNan}}},
            SvgUse::kFile),
        Svg(StackedBars{}, SvgUse::kFile), Svg(Histogram{}, SvgUse::kFile),
        Svg(BarChart{}, SvgUse::kFile)}) {
    EXPECT_TRUE(IsXml(svg)) << svg;
    EXPECT_EQ(svg.find("<script"), std::string::npos);
  }
}

// 1 : 3 of a bar without a label: 528 pixels, from 14 + 8 to 640 - 90
TEST(PlotTest, BarsShareTheirLength) {
  const std::string svg =
      Svg(StackedBars{.parts = {"a", "b"}, .bars = {{"", {25, 75}}}, .unit = "s"});
  EXPECT_NE(svg.find("width=\"132.0\""), std::string::npos) << svg;
  EXPECT_NE(svg.find("width=\"396.0\""), std::string::npos) << svg;
  EXPECT_NE(svg.find(">25 %<"), std::string::npos);
}

TEST(PlotTest, HistogramCountsEveryValueOnce) {
  Histogram histogram{.sets = {{"a", {}}}};
  for (int i = 0; i < 100; ++i) histogram.sets[0].second.push_back(i);
  const std::string svg = Svg(histogram);
  // 14 bins (sqrt of 200) over [0, 99]: 7.07 values each, so 7 or 8 percent a bin, 100 together
  int bins = 0, total = 0;
  const std::regex pattern(": ([0-9]+) %</title>");
  for (std::sregex_iterator it(svg.begin(), svg.end(), pattern), end; it != end; ++it) {
    ++bins;
    total += std::stoi((*it)[1]);
  }
  EXPECT_EQ(bins, 14);
  EXPECT_EQ(total, 100);
}

// y: 0..4 with 6 % of room over the frame from 214 up to 8 pixels: 4 is 206 / 1.06 high; x: two
// bars share 562 pixels, with a tenth of room on each side
TEST(PlotTest, BarsStandOnZero) {
  const std::string svg = Svg(BarChart{.bars = {{"few", 1}, {"many", 4}, {"none", 0}}});
  EXPECT_NE(svg.find("height=\"186.8\" class=\"hist c0\"><title>many: 4<"), std::string::npos)
      << svg;
  EXPECT_NE(svg.find("height=\"46.7\" class=\"hist c0\"><title>few: 1<"), std::string::npos) << svg;
  EXPECT_NE(svg.find(">none</text>"), std::string::npos);
  EXPECT_EQ(svg.find("<title>none"), std::string::npos);
}

}  // namespace
}  // namespace samara
