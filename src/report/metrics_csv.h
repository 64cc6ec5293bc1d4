// The lines of runs as a table, for spreadsheets and data frames.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/files.h"
#include "core/status.h"

namespace samara {

// Lines of metrics.jsonl by the name of their run.
using NamedLines = std::pair<std::string, std::vector<nlohmann::json>>;

// CSV (RFC 4180, lines end with \n): a row for each line without an event, a column for the run's
// name and for each number and text, members of an object as "drops.stale_unrolls"; lists are left
// out, what a line lacks is empty. Columns are in alphabetical order behind `run`.
std::string MetricsCsv(std::span<const NamedLines> runs);
// Writes the metrics of run folders, which it names as they are given. kNoInput, kBadData: as
// ReadMetrics.
Status WriteMetricsCsv(std::span<const Path> runs, const RootedPath& csv);

}  // namespace samara
