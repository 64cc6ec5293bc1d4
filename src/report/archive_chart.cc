#include "report/archive_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <sstream>

#include "core/files.h"
#include "core/format.h"
#include "env/registry.h"
#include "report/map_chart.h"
#include "report/report_sections.h"

namespace samara {
namespace {

constexpr int kWide = 640;                       // pixels at zoom 1
constexpr double kSide = 14, kHead = 56;         // pixels; the title and the legend are above
constexpr double kTallest = 640;                 // of the grid
constexpr size_t kBytesMax = size_t{256} << 20;  // of archive.csv

// "0,-2.5"
std::optional<EnvironmentMap::Point> PointOf(const std::string& text) {
  EnvironmentMap::Point p;
  char comma = 0;
  std::istringstream in(text);
  in.imbue(std::locale::classic());
  if (in >> p.x >> comma >> p.y && comma == ',' &&
      in.peek() == std::istringstream::traits_type::eof())
    return p;
  return std::nullopt;
}

// The first and the last but one number of each line but the first.
std::vector<ArchivedSolution> SolutionsOf(const std::string& csv) {
  std::vector<ArchivedSolution> solutions;
  std::istringstream in(csv);
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    const size_t last = line.rfind(','),
                 before = last == line.npos ? last : line.rfind(',', last - 1);
    if (before == line.npos) continue;
    solutions.push_back({std::strtoull(line.c_str(), nullptr, 10),
                         std::strtod(line.c_str() + before + 1, nullptr)});
  }
  return solutions;
}

}  // namespace

std::string ArchiveSvg(const EnvironmentMap& map, uint32_t cells,
                       std::span<const ArchivedSolution> solutions, const std::string& title,
                       SvgUse use) {
  const double across = map.high.x - map.low.x, up = map.high.y - map.low.y;
  const double wide = kWide - 2 * kSide, tall = std::min(kTallest, wide * up / across);
  const auto at = [&](EnvironmentMap::Point p) {
    const double share = (p.y - map.low.y) / up;
    return EnvironmentMap::Point{kSide + wide * (p.x - map.low.x) / across,
                                 kHead + tall * (map.y_down ? share : 1 - share)};
  };
  std::string svg = OpenSvg(kWide, static_cast<int>(std::lround(kHead + tall + kSide)), title, use);
  auto out = std::back_inserter(svg);
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (const ArchivedSolution& s : solutions)
    low = std::min(low, s.fitness), high = std::max(high, s.fitness);

  // 1. an outline, and a rectangle for each cell that is held
  fmt::format_to(out,
                 "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
                 "style=\"fill:none;stroke:var(--ink);opacity:.3\"/>",
                 kSide, kHead, wide, tall);
  const double width = wide / cells, height = tall / cells;
  for (const ArchivedSolution& s : solutions) {
    const uint64_t column = s.cell / cells, row = s.cell % cells;
    if (column >= cells) continue;
    const double left = static_cast<double>(column),
                 top = static_cast<double>(map.y_down ? row : cells - 1 - row);
    fmt::format_to(out,
                   "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\">"
                   "<title>{:.6g}</title></rect>",
                   kSide + left * width, kHead + top * height, width, height,
                   RampColour(high > low ? (s.fitness - low) / (high - low) : 1), s.fitness);
  }

  // 2. walls
  svg += WallsSvg(map, at);

  // 3. what the colours mean
  if (!solutions.empty())
    svg += RampLegend(fmt::format("return {:.6g}", low), fmt::format("{:.6g}", high));
  return svg + "</svg>\n";
}

std::string RunArchive(const RunData& run, SvgUse use) {
  const RootedPath file = run.folder / "archive.csv";
  const auto csv = ReadFile(file, kBytesMax);
  const uint64_t cells = std::strtoull(run.Config("map.cells").c_str(), nullptr, 10);
  if (!csv.ok() || cells == 0 || cells > 1000) return "";
  const auto low = PointOf(run.Config("map.low")), high = PointOf(run.Config("map.high"));
  EnvironmentMap map = NativeMap(run.Config("env.id")).value_or(EnvironmentMap{});
  if (low && high) map.low = *low, map.high = *high;
  if (!(map.low.x < map.high.x) || !(map.low.y < map.high.y)) return "";
  const char* const kTitle = "The archive: the best return of each cell of behaviours";
  return ArchiveSvg(map, static_cast<uint32_t>(cells), SolutionsOf(*csv),
                    use == SvgUse::kFile ? Title(run) : kTitle, use);
}

}  // namespace samara
