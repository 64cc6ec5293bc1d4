// Interval statistics: the work of a learning run between two lines of metrics.jsonl.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "core/clock.h"
#include "rl/learner/agent.h"
#include "train/rank_statistics.h"

namespace samara {

class AgentInterval {
 public:
  void Add(const RankStatistics& statistics);
  void Add(const UpdateReport& update);
  void Waited(double seconds) { learner_wait_ += seconds; }  // the learner, for unrolls

  uint64_t updates() const { return updates_; }
  double seconds() const { return SecondsSince(begin_); }  // so far
  // Its members of the line (doc/metrics.md); null where there is nothing to average.
  nlohmann::json Line() const;

 private:
  SteadyTime begin_ = Now();
  uint64_t updates_ = 0, frames_ = 0;
  std::vector<double> returns_, lengths_;
  Lags lags_;
  UpdateReport sum_;      // over the updates that were applied, and the seconds of all
  uint64_t applied_ = 0;  // updates
  double learner_wait_ = 0;
};

}  // namespace samara
