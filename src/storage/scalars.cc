#include "storage/scalars.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "storage/metrics.h"

namespace samara {
namespace {

struct Group {
  std::string_view name;
  // Beginnings of names, separated by spaces; one that begins with '*' is an end.
  std::string_view words;
};

// The first that fits.
constexpr Group kGroups[] = {
    {"time", "seconds *_per_second"},
    {"charts",
     "return fitness elite_validation elite_test length population_mean novelty centre_mean "
     "centre_novelty coverage qd_score archive"},
    {"losses",
     "loss *_loss entropy q_mean td_error kl importance_weight clip_fraction explained_variance "
     "*gradient_norm learning_rate update_ratio"},
    {"counts",
     "generation update steps episodes evaluations solved_at solved_generation solved_individual "
     "frames observations_seen"},
    {"system", "lag queue stalls rows_per_batch live_slots environment_workers respawns"},
};
constexpr std::string_view kOther = "algorithm";

bool Fits(std::string_view name, std::string_view word) {
  return word.starts_with('*') ? name.ends_with(word.substr(1)) : name.starts_with(word);
}

bool FitsOne(std::string_view name, std::string_view words) {
  while (!words.empty()) {
    const size_t space = std::min(words.find(' '), words.size());
    if (Fits(name, words.substr(0, space))) return true;
    words.remove_prefix(std::min(space + 1, words.size()));
  }
  return false;
}

std::optional<uint64_t> Count(const nlohmann::json& line, const char* name) {
  const auto found = line.find(name);
  if (found == line.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<uint64_t>();
}

Scalars OfEvent(const nlohmann::json& line) {
  struct Row {
    const char *event, *number, *tag;
  };
  constexpr Row kRows[] = {{"random_policy", "mean", "eval/random_mean"},
                           {"evaluation", "mean", "eval/return_mean"},
                           {"finished", "elite_mean", "eval/final_mean"},
                           {"finished", "test_mean", "eval/final_mean"}};
  Scalars found{.step = Count(line, "frames").value_or(0), .values = {}};
  for (const Row& row : kRows)
    if (const auto number = line.find(row.number);
        line["event"] == row.event && number != line.end() && number->is_number())
      found.values.emplace_back(row.tag, number->get<double>());
  return found;
}

}  // namespace

std::string GroupedName(std::string_view name) {
  const auto* group =
      std::ranges::find_if(kGroups, [name](const Group& g) { return FitsOne(name, g.words); });
  const std::string_view chosen = group == std::end(kGroups) ? kOther : group->name;
  return std::string(chosen) + "/" + std::string(name);
}

std::optional<Scalars> ScalarsOf(const nlohmann::json& line) {
  if (line.contains("event")) {
    Scalars found = OfEvent(line);
    return found.values.empty() ? std::nullopt : std::optional(std::move(found));
  }
  const auto number = StepOf(line);
  if (!number) return std::nullopt;
  Scalars found{.step = Count(line, "frames").value_or(*number), .values = {}};
  for (const auto& [name, value] : line.items())
    if (value.is_number() && name != "frames")
      found.values.emplace_back(GroupedName(name), value.get<double>());
  return found;
}

}  // namespace samara
