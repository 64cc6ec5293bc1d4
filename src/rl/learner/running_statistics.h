// Mean and standard deviation of each of n numbers over all rows that a run has seen, in double
// precision: what a network's statistics are set to (nn/torch/agent_network.h).
//
// Rows of a batch are first summed apart, in `Moments`; those of several learners are added up as
// float32 in a fixed order, and then join what was seen (Chan, Golub and LeVeque 1983, equations
// 2.1). The sums are of (x - mean) / deviation by the statistics so far, which keeps them exact
// enough.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace samara {

class RunningStatistics {
 public:
  explicit RunningStatistics(size_t numbers)
      : mean_(numbers, 0), squares_(numbers, 0), deviation_(numbers, 1) {}

  size_t numbers() const { return mean_.size(); }
  double count() const { return count_; }
  // 0 and 1 until something was seen. Deviations are at least kDeviationFloor.
  double Mean(size_t i) const { return mean_[i]; }
  double Deviation(size_t i) const { return deviation_[i]; }
  std::vector<float> Floats() const;  // all means, then all deviations

  // Sums of rows, to be added up with those of others: 1 + 2 numbers() floats. A row with a number
  // that is not finite, or beyond 1e12, is left out.
  std::vector<float> Moments(std::span<const float> rows) const;
  // Adds one row to such sums in double precision, at first 1 + 2 numbers() zeros.
  void AddRow(std::span<const float> row, std::vector<double>& sums) const;
  void Merge(std::span<const float> moments);
  // Takes what a policy carries, as if kCarried rows had it.
  void Assume(std::span<const float> mean, std::span<const float> deviation);

  std::string Save() const;
  Status Restore(std::string_view saved);  // kBadData

  static constexpr double kDeviationFloor = 1e-4, kCarried = 1000;

 private:
  void FindDeviations();
  double count_ = 0;
  std::vector<double> mean_, squares_;  // squares: sums of (x - mean)^2
  std::vector<double> deviation_;
};

}  // namespace samara
