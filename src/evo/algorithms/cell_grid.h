// The grid of MAP-Elites: equal cells over the space of behaviours, one solution a cell.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/status.h"
#include "env/interface.h"

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

// The keys `map.*` of a grid.
struct GridSettings {
  int64_t cells = 20;
  std::string low, high;  // corners; empty: those of the task's map
  double offset = 0;      // what the QD score subtracts from each return

  void Bind(ConfigTable& table);
  // The grid over final positions in `environment`. kConfig: it has none, or they do not fit.
  Result<CellGrid> Grid(const EnvironmentSpec& environment) const;
  // Recording that the episodes need: none. kConfig as Grid.
  Result<RecordKind> Records(const EnvironmentSpec& environment) const;
};

// The cells that are held, as CSV: number, position, return, and one more column.
class ArchiveTable {
 public:
  ArchiveTable(size_t dimensions, std::string_view last);
  void Add(uint64_t cell, std::span<const float> position, double fitness, double last);
  std::string Take() { return std::move(csv_); }

 private:
  std::string csv_;
};

// A position written as numbers with commas between them, such as "0,-2.5". Empty text: none.
// kConfig, with the name of the key: anything else.
Result<std::vector<double>> ParsePosition(std::string_view key, std::string_view text);

}  // namespace samara
