#include "evo/algorithms/cell_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/log.h"

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
      return Status(
          Code::kConfig,
          fmt::format("map.low={} is not below map.high={} in dimension {}", low[i], high[i], i));
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
