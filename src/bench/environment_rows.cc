#include "bench/environment_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/cpu.h"
#include "fleet/actor_process.h"

namespace samara::bench {

using nlohmann::json;

void EnvironmentRows::Offer(json row) {
  for (json& kept : rows_) {
    if (kept["who"] != row["who"] || kept["how"] != row["how"] || kept["envs"] != row["envs"])
      continue;
    if (kept["frames_per_second"] < row["frames_per_second"]) kept = std::move(row);
    return;
  }
  rows_.push_back(std::move(row));
}

json EnvironmentRows::BestOf(const std::string& who) const {
  json best;
  for (const json& row : rows_) {
    const json& rate = row["frames_per_second"];
    if (row["who"] == who && !rate.is_null() && (best.is_null() || best < rate)) best = rate;
  }
  return best;
}

json EnvironmentRows::Ratio(std::span<const char* const> rivals) const {
  double strongest = 0;
  for (const char* who : rivals)
    if (const json rate = BestOf(who); rate.is_number())
      strongest = std::max(strongest, rate.get<double>());
  const json mine = BestOf("samara");
  return strongest > 0 && mine.is_number() ? json(mine.get<double>() / strongest) : json();
}

std::string EnvironmentRows::Line(const json& row) {
  const auto who = row["who"].get<std::string>();
  if (row.contains("reason")) return who + ": " + row["reason"].get<std::string>();
  return fmt::format("{}, {}, {} environments: {:.0f} frames/s", who, row["how"].get<std::string>(),
                     row["envs"].get<int>(), row["frames_per_second"].get<double>());
}

Status OfferRival(const std::string& who, const Options& options, EnvironmentRows& rows) {
  ASSIGN_OR_RETURN(json answer, RunRival("env_rivals.py",
                                         {who, options.game, std::to_string(Cores()),
                                          std::to_string(options.seconds), DefaultPythonPath()}));
  const json common = {{"who", who}, {"game", options.game}};
  for (json& row : answer["rows"]) {
    row.update(common);
    rows.Offer(std::move(row));
  }
  if (!answer.contains("reason")) return Status::Ok();
  json row = {{"how", nullptr},
              {"envs", nullptr},
              {"processes", nullptr},
              {"threads", nullptr},
              {"frames_per_second", nullptr},
              {"reason", answer["reason"]}};
  row.update(common);
  rows.Offer(std::move(row));
  return Status::Ok();
}

}  // namespace samara::bench
