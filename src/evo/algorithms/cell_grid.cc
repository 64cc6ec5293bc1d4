#include "evo/algorithms/cell_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/log.h"
#include "env/registry.h"

namespace samara {

Result<CellGrid> CellGrid::Make(std::vector<double> low, std::vector<double> high, int64_t cells) {
  if (low.empty() || low.size() != high.size())
    return Status(Code::kConfig,
                  fmt::format("map.low has {} numbers, map.high {}; expected as many as the "
                              "behaviour has",
                              low.size(), high.size()));
  double all = 1;
  for (size_t i = 0; i < low.size(); ++i) {
    if (!(low[i] < high[i]) || !std::isfinite(high[i] - low[i]))
      return Status(Code::kConfig,
                    fmt::format("map.low={}, map.high={} in dimension {}: expected the first below "
                                "the second, and a finite difference",
                                low[i], high[i], i));
    all *= static_cast<double>(cells);
  }
  if (all > static_cast<double>(kCellsMax))
    return Status(Code::kConfig,
                  fmt::format("map.cells={}: {:.3g} cells in {} dimensions; expected at most {}",
                              cells, all, low.size(), kCellsMax));
  CellGrid grid;
  grid.low_ = std::move(low), grid.high_ = std::move(high), grid.cells_ = cells;
  return grid;
}

uint64_t CellGrid::size() const {
  uint64_t all = 1;
  for (size_t i = 0; i < dimensions(); ++i) all *= static_cast<uint64_t>(cells_);
  return all;
}

std::optional<uint64_t> CellGrid::CellOf(std::span<const float> position) const {
  uint64_t cell = 0;
  for (size_t i = 0; i < dimensions(); ++i) {
    const double share = (double{position[i]} - low_[i]) / (high_[i] - low_[i]);
    if (std::isnan(share)) return std::nullopt;
    const auto last = static_cast<double>(cells_ - 1);
    const double at = std::clamp(std::floor(share * static_cast<double>(cells_)), 0.0, last);
    cell = cell * static_cast<uint64_t>(cells_) + static_cast<uint64_t>(at);
  }
  return cell;
}

void GridSettings::Bind(ConfigTable& table) {
  table.Add("map.cells", &cells, {1, 1000}, "cells",
            "number of cells in each dimension of the behaviour, the position at the end");
  table.Add("map.low", &low, {},
            "lower corner of the grid, numbers with commas between them; empty: of the task's map");
  table.Add("map.high", &high, {}, "upper corner of the grid");
  table.Add("map.offset", &offset, {-1e9, 1e9}, "", "subtracted from each return in the QD score",
            OnResume::kMayChange);
}

Result<CellGrid> GridSettings::Grid(const EnvironmentSpec& environment) const {
  if (environment.position == 0)
    return Status(Code::kConfig,
                  fmt::format("run.algorithm: {} has no position of a body, which the "
                              "cells of the archive are made of",
                              environment.id));
  ASSIGN_OR_RETURN(std::vector<double> from, ParsePosition("map.low", low));
  ASSIGN_OR_RETURN(std::vector<double> to, ParsePosition("map.high", high));
  if (from.empty() && to.empty()) {
    const auto map = NativeMap(environment.id.substr(environment.id.find('/') + 1));
    if (!map)
      return Status(Code::kConfig, fmt::format("map.low and map.high are empty, and {} has no map; "
                                               "expected the corners of the grid, {} numbers each",
                                               environment.id, environment.position));
    from = {map->low.x, map->low.y}, to = {map->high.x, map->high.y};
  }
  ASSIGN_OR_RETURN(CellGrid grid, CellGrid::Make(std::move(from), std::move(to), cells));
  if (grid.dimensions() == static_cast<size_t>(environment.position)) return grid;
  return Status(Code::kConfig,
                fmt::format("map.low has {} numbers; expected {}, as the position "
                            "in {} has",
                            grid.dimensions(), environment.position, environment.id));
}

Result<RecordKind> GridSettings::Records(const EnvironmentSpec& environment) const {
  RETURN_IF_ERROR(Grid(environment).status());
  return RecordKind::kNothing;
}

ArchiveTable::ArchiveTable(size_t dimensions, std::string_view last) : csv_("cell") {
  for (size_t i = 0; i < dimensions; ++i) csv_ += fmt::format(",position{}", i);
  csv_ += fmt::format(",return,{}\n", last);
}

void ArchiveTable::Add(uint64_t cell, std::span<const float> position, double fitness,
                       double last) {
  csv_ += fmt::format("{}", cell);
  for (const float x : position) csv_ += fmt::format(",{}", x);
  csv_ += fmt::format(",{},{}\n", fitness, last);
}

Result<std::vector<double>> ParsePosition(std::string_view key, std::string_view text) {
  std::vector<double> numbers;
  const char *at = text.data(), *const end = at + text.size();
  while (at != end) {
    double number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    const bool more = next != end && *next == ',' && next + 1 != end;
    if (error != std::errc() || !std::isfinite(number) || (next != end && !more))
      return Status(Code::kConfig,
                    fmt::format("{}={}: expected numbers with commas between them, such as 0,-2.5",
                                key, Shown(text)));
    numbers.push_back(number);
    at = more ? next + 1 : next;
  }
  return numbers;
}

}  // namespace samara
