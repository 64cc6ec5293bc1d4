// Charts as SVG text: lines with bands, stacked bars, histograms, bars.
//
// Colours come from CSS variables with a light and a dark set (after Okabe and Ito's colour-blind
// safe palette); series also differ by dash. Values that are not finite leave gaps; a chart without
// data says so. All text is escaped. Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

namespace samara {

enum class Stroke { kSolid, kDashed, kDotted, kPoints };

struct Series {
  std::string name = {};
  std::vector<double> x = {}, y = {};       // equal sizes, x ascending
  std::vector<double> low = {}, high = {};  // band around y, same size; empty for none
  int colour = 0;                           // index into the palette, modulo its size
  Stroke stroke = Stroke::kSolid;
  size_t window = 0;  // above 1: the line is the mean of so many values around each, which are thin
};

// The series with a moving mean over a twentieth of its values; as it is where they are few or are
// drawn as points.
Series Smoothed(Series series);

struct LineChart {
  std::string title = {}, x_label = {}, y_label = {};
  std::vector<Series> series = {};
  std::vector<std::pair<std::string, double>> references = {};  // horizontal lines: name, y
  int width = 640, height = 340;                                // pixels at zoom 1
};

struct StackedBars {
  std::string title = {};
  std::vector<std::string> parts = {};  // names, in the order they are stacked
  // Name of the bar and one value per part; each bar is stretched to its own 100 %.
  std::vector<std::pair<std::string, std::vector<double>>> bars = {};
  std::string unit = {};  // of a bar's total, written at its end
  int width = 640;
};

struct Histogram {
  std::string title = {}, x_label = {};
  std::vector<std::pair<std::string, std::vector<double>>> sets = {};  // drawn over each other
  int width = 640, height = 260;
};

// A bar for each name, from 0 up to its value.
struct BarChart {
  std::string title = {}, x_label = {}, y_label = {};
  std::vector<std::pair<std::string, double>> bars = {};
  int width = 640, height = 260;
};

// kInline: inside a page that carries ChartCss(). kFile: a picture of its own.
enum class SvgUse { kInline, kFile };

std::string Svg(const LineChart& chart, SvgUse use = SvgUse::kInline);
std::string Svg(const StackedBars& chart, SvgUse use = SvgUse::kInline);
std::string Svg(const Histogram& chart, SvgUse use = SvgUse::kInline);
std::string Svg(const BarChart& chart, SvgUse use = SvgUse::kInline);

// The opening tag of a chart with its title, for charts that another file draws.
std::string OpenSvg(int width, int height, const std::string& title, SvgUse use);
// Variables and classes of the charts, light and dark.
std::string ChartCss();

// Round numbers (1, 2 or 5 times a power of ten apart) from the first >= low to the last <= high,
// about `count` of them. REQUIRES: low < high, both finite.
std::vector<double> NiceTicks(double low, double high, int count);

}  // namespace samara
