// The block of text that ends samara train.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace samara {

// Lines ending in "\n"; what is missing from `result` is left out. Members read:
//   elite_mean, elite_median, elite_returns[]    fresh episodes of the elite
//   test_returns[], return_last100               of a learning agent
//   random_mean, random_median, random_returns[] a random policy, same episodes' conditions
//   frames, generation or updates, seconds, cores           population + validation frames; cores
//   of the run
//   video, learning_curve, map, archive, report, run   paths
std::string FinalSummary(const nlohmann::json& result);

}  // namespace samara
