// Evolution with a normal distribution of its own deviation in each parameter: what PGPE, SNES and
// sep-CMA-ES share. An algorithm derives from SeparableEvolution and says how mean and deviations
// move (Move); everything else of a generation is here.
//
// Member k plays mean + scale * deviation * e(k), elementwise; with mirrored members 2 j and
// 2 j + 1 play both signs of e(j). All three algorithms need two sums over the members only,
// sum a e and sum b (e^2 - 1): one pass over the parameters.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evo/algorithms/algorithm.h"
#include "evo/algorithms/ascent.h"
#include "evo/algorithms/observation_statistics.h"

namespace samara {

struct SeparableSettings {
  int64_t population = 100;
  int64_t episodes = 1;  // per fitness
  int64_t validation_episodes = 30;
  NoiseKind noise = NoiseKind::kNormal;
  bool mirrored = false;
};

// The parameters that they and CMA-ES share.
class SeparableConfig : public StatisticsConfig {
 public:
  explicit SeparableConfig(const SeparableSettings& defaults)
      : StatisticsConfig(1), members(defaults) {}
  bool TakesInitialPolicy() const override { return true; }
  Status Check(const NetworkDescription& network) const override;

  SeparableSettings members;

 protected:
  void BindMembers(ConfigTable& config);
};

struct SeparableState : EvolutionCounters {
  static constexpr uint32_t kVersion = 2;  // 1: without statistics of observations
  std::vector<float> mean, deviation;
  double scale = 1;                  // of all deviations
  std::vector<float> path1, path2;   // what an algorithm remembers of its steps; may be empty
  ObservationStatistics statistics;  // of a `normalize` layer; else of nothing
  double centre_mean = 0;            // of the mean's validation
  Digest population_hash{};

  EvolutionSummary Summary() const {
    return {EvolutionCounters(*this), population_hash, mean, centre_mean};
  }
  std::string Encode() const;
  static Result<SeparableState> Decode(std::string_view bytes);  // kBadData
};
Result<EvolutionSummary> DescribeSeparable(std::string_view state);

class SeparableEvolution : public EvolutionAlgorithm {
 public:
  Result<GenerationReport> Step(const StopToken& stop) override;
  size_t EpisodesOfNext() const override;
  std::string EncodeState() const override { return state_.Encode(); }
  Status RestoreState(std::string_view bytes) override;
  EvolutionSummary summary() const override { return state_.Summary(); }
  std::vector<NamedCandidate> Candidates() const override {
    return {{"centre", state_.mean, state_.centre_mean}};
  }
  uint64_t MembersOfNext() const override { return static_cast<uint64_t>(settings_.population); }
  Candidate MemberOfNext(uint64_t i) const override;

 protected:
  // The mean begins with zeros or the setup's initial policy, the deviations with `deviation`.
  SeparableEvolution(const SeparableConfig& config, const EvolutionSetup& setup, double deviation,
                     size_t paths);
  size_t parameters() const { return network_.evolved_count; }  // that move, the first ones
  // Moves `next` by the members' fitness; returns metrics of its own.
  virtual nlohmann::json Move(std::span<const double> fitness, std::span<const uint64_t> keys,
                              SeparableState& next) const = 0;
  // Calls body(first, sum a e, sum b (e^2 - 1)) once per block of parameters, on all cores; one a
  // and one b per key.
  using Moments =
      std::function<void(size_t first, std::span<const double> of_a, std::span<const double> of_b)>;
  void ForMoments(std::span<const uint64_t> keys, std::span<const double> a,
                  std::span<const double> b, const Moments& body) const;

 private:
  class Members;
  const SeparableSettings settings_;
  const EvolutionBudget budget_;
  const StatisticsKeeper keeper_;
  const Noise& noise_;
  SeparableState state_;  // constant while episodes are played
};

// The rows of the registry: PGPE with ClipUp (pgpe.cc), SNES (snes.cc), sep-CMA-ES (sep_cma.cc).
std::unique_ptr<EvolutionConfig> MakePgpeConfig();
std::unique_ptr<EvolutionConfig> MakeSnesConfig();
std::unique_ptr<EvolutionConfig> MakeSepCmaConfig();

}  // namespace samara
