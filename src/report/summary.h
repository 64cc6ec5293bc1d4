// The block of text that ends samara train.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace samara {

// Score of a result in one number: the mean of the elite's fresh episodes, of the agent's test, or
// of the last training episodes; NaN where there is none.
double HeadlineScore(const nlohmann::json& result);

// Lines ending in "\n"; what is missing from `result` is left out. Members read:
//   elite_mean, elite_median, elite_returns[]    fresh episodes of the elite
//   test_returns[], return_last100               of a learning agent
//   random_mean, random_median, random_returns[] a random policy, same episodes' conditions
//   frames, generation or updates, seconds, cores           population + validation frames; cores
//   of the run
//   video, learning_curve, map, archive, report, run   paths
std::string FinalSummary(const nlohmann::json& result);
// The same of the runs of several seeds: how their headline scores spread, and which is best.
std::string SeedsSummary(const std::vector<nlohmann::json>& results);

// The same of several settings: their means, the best first, and the best run. `results`: as many
// for each of the names, in their order.
std::string SettingsSummary(const std::vector<std::string>& names,
                            std::span<const nlohmann::json> results);

}  // namespace samara
