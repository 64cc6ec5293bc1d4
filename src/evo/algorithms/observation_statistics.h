// Mean and standard deviation of each number of an observation, over a run: what a network's
// `normalize` layer computes with. They are gathered in a share of the population's episodes, whose
// recordings (EpisodeSpec::record) come back with their results. An algorithm whose policy is one
// vector has a StatisticsKeeper, and the statistics themselves in its state.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/bytes.h"
#include "core/config.h"
#include "core/status.h"
#include "env/episode.h"
#include "evo/algorithms/algorithm.h"
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

// The parameters of an algorithm that has a StatisticsKeeper.
class StatisticsConfig : public EvolutionConfig {
 public:
  explicit StatisticsConfig(double share) : observation_share(share) {}
  bool KeepsStatistics(const NetworkDescription& network) const override {
    return observation_share > 0 && Normalizes(network);
  }
  Result<RecordKind> Records(const EnvironmentSpec& /*environment*/,
                             const NetworkDescription& network) const override {
    return KeepsStatistics(network) ? RecordKind::kObservations : RecordKind::kNothing;
  }

  double observation_share;  // of the population's episodes, for a `normalize` layer

 protected:
  void BindObservationShare(ConfigTable& config);  // the row TABLE.observation_share
};

// Its setup: episodes record nothing but where StatisticsKeeper::Choose says so.
EvolutionSetup WithoutRecording(EvolutionSetup setup);

// Does nothing, with statistics of no numbers, where the configuration keeps none.
class StatisticsKeeper {
 public:
  // `network` outlives this object.
  StatisticsKeeper(const StatisticsConfig& config, const NetworkDescription& network)
      : share_(config.observation_share),
        network_(network),
        keeps_(config.KeepsStatistics(network)) {}

  // The first statistics of a run, those of `initial` where it is not null; also in `policy`.
  ObservationStatistics Begin(const InitialPolicy* initial, std::span<float> policy) const;
  // Has episode `index` of a generation's population record or not, as `player` draws; the first
  // one does.
  void Choose(const GenerationPlayer& player, uint64_t index, Task& task) const;
  void Choose(const GenerationPlayer& player, std::span<Task> population) const {
    for (size_t i = 0; i < population.size(); ++i) Choose(player, i, population[i]);
  }
  // GenerationPlan::reduce of such episodes.
  std::function<void(EpisodeResult&)> Reduce() const;
  // Adds what the population's episodes recorded, in their order. kBadData: one is damaged.
  Status Add(std::span<const EpisodeResult> played, ObservationStatistics& statistics) const;
  // Writes the statistics into `policy`.
  void Write(const ObservationStatistics& statistics, std::span<float> policy) const {
    if (keeps_) WriteStatistics(statistics, network_, policy);
  }

 private:
  const double share_;
  const NetworkDescription& network_;
  const bool keeps_;
};

}  // namespace samara
