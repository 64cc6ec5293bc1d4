// Rows of the workloads that step environments: one per configuration, the best round of each.
#pragma once

#include <span>

#include "bench/bench.h"

namespace samara::bench {

class EnvironmentRows {
 public:
  // Keeps `row` where it is its configuration's best.
  void Offer(nlohmann::json row);
  // The most frames per second of `who`; null when it was not measured.
  nlohmann::json BestOf(const std::string& who) const;
  // The ratio of samara to the best of `rivals`; null where either was not measured.
  nlohmann::json Ratio(std::span<const char* const> rivals) const;
  const nlohmann::json& all() const { return rows_; }
  // One line of a row, for people.
  static std::string Line(const nlohmann::json& row);

 private:
  nlohmann::json rows_ = nlohmann::json::array();
};

// Offers what env_rivals.py measures of `who`; a row without figures says why in "reason".
Status OfferRival(const std::string& who, const Options& options, EnvironmentRows& rows);

}  // namespace samara::bench
