// The grid of MAP-Elites: equal cells over the space of behaviours, one solution a cell.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace samara {

class CellGrid {
 public:
  static constexpr uint64_t kCellsMax = 1'000'000;

  // `cells` in each dimension between the corners `low` and `high`. kConfig: the corners are not of
  // one size, `low` is not below `high` everywhere, or there are more than kCellsMax cells.
  static Result<CellGrid> Make(std::vector<double> low, std::vector<double> high, int64_t cells);

  size_t dimensions() const { return low_.size(); }
  uint64_t size() const;  // cells
  // The cell of a position, the last dimension counting fastest. What is outside belongs to the
  // cell at that border; none when a number of it is NaN. REQUIRES: dimensions() numbers.
  std::optional<uint64_t> CellOf(std::span<const float> position) const;

 private:
  std::vector<double> low_, high_;
  int64_t cells_ = 1;
};

// A position written as numbers with commas between them, such as "0,-2.5". Empty text: none.
// kConfig, with the name of the key: anything else.
Result<std::vector<double>> ParsePosition(std::string_view key, std::string_view text);

}  // namespace samara
