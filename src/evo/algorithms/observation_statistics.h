// Mean and standard deviation of each number of an observation, over a run: what a network's
// `normalize` layer computes with. They are gathered in a share of the population's episodes, whose
// recordings (EpisodeSpec::record) come back with their results.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/bytes.h"
#include "env/episode.h"
#include "nn/network.h"

namespace samara {

// Sums in double precision, in the order in which rows are added. At first mean 0 and deviation 1,
// as the program of Salimans et al. begins: a hundredth of an observation counts as seen.
class ObservationStatistics {
 public:
  ObservationStatistics() = default;
  explicit ObservationStatistics(size_t numbers)
      : sum_(numbers), squares_(numbers, kFirst), count_(kFirst) {}

  // Those that a policy of such a network carries, as if a thousand observations had them; means of
  // 0 and deviations of 1 alone are those of a policy that carries none.
  ObservationStatistics(const NetworkDescription& network, std::span<const float> canonical);

  // Rows of numbers() floats each; what is not finite counts as 0.
  void Add(std::span<const float> rows);
  void Add(const ObservationStatistics& other);  // what it has seen
  size_t numbers() const { return sum_.size(); }
  uint64_t seen() const { return seen_; }
  double Mean(size_t i) const { return sum_[i] / count_; }
  double Deviation(size_t i) const;  // at least 0.1

  void Put(ByteWriter& out) const;
  bool Get(ByteReader& in);  // false: damaged. Check numbers() too

 private:
  static constexpr double kFirst = 1e-2, kOfPolicy = 1000;
  std::vector<double> sum_, squares_;
  double count_ = 0;
  uint64_t seen_ = 0;
};

// Whether such statistics are all that the network has: it begins with a `normalize` layer, and no
// layer has virtual batch norm, whose statistics are of a reference batch.
bool Normalizes(const NetworkDescription& network);
// Writes the statistics into the canonical vector of such a network.
void WriteStatistics(const ObservationStatistics& statistics, const NetworkDescription& network,
                     std::span<float> canonical);

// Replaces the recorded observations of an episode by their sums, which are smaller. The same again
// for a recording that was reduced before.
void ReduceRecording(size_t numbers, EpisodeResult& result);
// Adds what the episode recorded, reduced or not: the same bits. An episode that recorded nothing
// changes nothing. False: damaged.
bool AddRecording(const EpisodeResult& result, ObservationStatistics& statistics);

}  // namespace samara
