#include "report/map_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "core/format.h"

namespace samara {
namespace {

using Point = EnvironmentMap::Point;

constexpr int kWidth = 640;                // pixels at zoom 1
constexpr double kMargin = 14, kTop = 56;  // pixels; the title and the legend are above
constexpr size_t kPointsMax = 6000;        // drawn; more hide each other
constexpr double kWidenMax = 1;            // of the map's size, to each side

// The corners of all that is drawn.
struct Extent {
  Point low, high;
};
Extent ExtentOf(const EnvironmentMap& map, std::span<const EndPoints> generations) {
  Extent extent{map.low, map.high};
  const Point room{kWidenMax * (map.high.x - map.low.x), kWidenMax * (map.high.y - map.low.y)};
  const auto widen = [](double value, double low_limit, double high_limit, double& low,
                        double& high) {
    if (!std::isfinite(value)) return;
    low = std::max(std::min(low, value), low_limit);
    high = std::min(std::max(high, value), high_limit);
  };
  for (const EndPoints& generation : generations) {
    const auto& xy = generation.positions;
    for (size_t i = 0; i + 1 < xy.size(); i += 2) {
      widen(xy[i], map.low.x - room.x, map.high.x + room.x, extent.low.x, extent.high.x);
      widen(xy[i + 1], map.low.y - room.y, map.high.y + room.y, extent.low.y, extent.high.y);
    }
  }
  return extent;
}

}  // namespace

// The ramp goes over blue and green, which are distinct on light and dark backgrounds.
std::string RampColour(double share) {
  if (!(share >= 0)) share = 0;
  constexpr std::array<std::array<double, 3>, 4> kStops{
      {{126, 64, 190}, {40, 120, 200}, {30, 160, 110}, {232, 120, 30}}};
  const double at = std::clamp(share, 0.0, 1.0) * (kStops.size() - 1);
  const auto stop = std::min(static_cast<size_t>(at), kStops.size() - 2);
  const double rest = at - static_cast<double>(stop);
  const auto mix = [&](size_t c) {
    return static_cast<int>(
        std::lround(kStops[stop][c] + rest * (kStops[stop + 1][c] - kStops[stop][c])));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(0), mix(1), mix(2));
}

std::string RampLegend(const std::string& from, const std::string& to) {
  constexpr int kSteps = 24, kStep = 6, kBar = 130;
  std::string svg = fmt::format("<text x=\"14\" y=\"43\">{}</text>", from);
  auto out = std::back_inserter(svg);
  for (int i = 0; i < kSteps; ++i)
    fmt::format_to(out, "<rect x=\"{}\" y=\"34\" width=\"{}\" height=\"10\" fill=\"{}\"/>",
                   kBar + i * kStep, kStep, RampColour(static_cast<double>(i) / (kSteps - 1)));
  fmt::format_to(out, "<text x=\"{}\" y=\"43\">{}</text>", kBar + kSteps * kStep + 8, to);
  return svg;
}

std::string WallsSvg(const EnvironmentMap& map, const std::function<Point(Point)>& at) {
  if (map.walls.empty()) return "";
  std::string path;
  for (const EnvironmentMap::Wall& wall : map.walls) {
    const Point from = at(wall.from), to = at(wall.to);
    path += fmt::format("M{:.1f} {:.1f}L{:.1f} {:.1f}", from.x, from.y, to.x, to.y);
  }
  return fmt::format("<path d=\"{}\" style=\"stroke:var(--ink);stroke-width:3;fill:none\"/>", path);
}

std::string MapSvg(const EnvironmentMap& map, std::span<const EndPoints> generations,
                   const std::string& title, SvgUse use) {
  const Extent extent = ExtentOf(map, generations);
  const double scale = (kWidth - 2 * kMargin) / (extent.high.x - extent.low.x);
  const double tall = scale * (extent.high.y - extent.low.y);
  const auto at = [&](Point p) {
    const double up = scale * (p.y - extent.low.y);
    return Point{kMargin + scale * (p.x - extent.low.x), kTop + (map.y_down ? up : tall - up)};
  };
  std::string svg =
      OpenSvg(kWidth, static_cast<int>(std::lround(kTop + tall + kMargin)), title, use);
  auto out = std::back_inserter(svg);

  // 1. the ground plan
  if (map.goal) {
    const Point goal = at(*map.goal);
    fmt::format_to(out,
                   "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" class=\"band c2\">"
                   "<title>goal</title></circle>",
                   goal.x, goal.y, scale * map.goal_radius);
  }
  svg += WallsSvg(map, at);

  // 2. where episodes ended
  size_t points = 0;
  for (const EndPoints& generation : generations) points += generation.positions.size() / 2;
  const size_t stride = std::max<size_t>(1, (points + kPointsMax - 1) / kPointsMax);
  size_t number = 0;
  for (size_t g = 0; g < generations.size(); ++g) {
    const auto& xy = generations[g].positions;
    std::string dots;
    for (size_t i = 0; i + 1 < xy.size(); i += 2) {
      if (number++ % stride != 0) continue;
      const Point p{xy[i], xy[i + 1]};
      if (!(p.x >= extent.low.x && p.x <= extent.high.x && p.y >= extent.low.y &&
            p.y <= extent.high.y))
        continue;
      const Point dot = at(p);
      // a line of no length with round ends is a dot
      dots += fmt::format("M{:.1f} {:.1f}h0", dot.x, dot.y);
    }
    if (dots.empty()) continue;
    const double share = generations.size() > 1
                             ? static_cast<double>(g) / static_cast<double>(generations.size() - 1)
                             : 1;
    fmt::format_to(out,
                   "<path d=\"{}\" style=\"stroke:{};stroke-width:4;stroke-linecap:round;"
                   "opacity:.7\"/>",
                   dots, RampColour(share));
  }

  // 3. the start, and what the colours mean
  const Point start = at(map.start);
  fmt::format_to(out,
                 "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" style=\"fill:none;stroke:var(--ink);"
                 "stroke-width:2\"><title>start</title></circle>",
                 start.x, start.y);
  if (points > 0)
    svg += RampLegend(fmt::format("generation {}", generations.front().generation),
                      std::to_string(generations.back().generation));
  return svg + "</svg>\n";
}

}  // namespace samara
