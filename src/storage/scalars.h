// Scalars of a line of metrics.jsonl, for programs that draw curves.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace samara {

// Numbers by "group/name" at a step, which counts environment frames.
struct Scalars {
  uint64_t step = 0;
  std::vector<std::pair<std::string, double>> values;
};

// "losses/entropy" of "entropy"; groups are those of doc/metrics.md.
// python/samara/loggers/scalars.py has the same rules, and tests/test_loggers.py compares them.
std::string GroupedName(std::string_view name);
// Every number of a line of a generation or of updates; what an event says of the random policy, an
// evaluation and the result. Nothing for other lines.
std::optional<Scalars> ScalarsOf(const nlohmann::json& line);

}  // namespace samara
