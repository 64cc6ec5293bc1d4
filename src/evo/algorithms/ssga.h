// The steady-state GA of the safe-mutations paper (Lehman et al. 2018, arXiv 1712.06563): one birth
// at a time, both parent and victim by tournament.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evo/algorithms/algorithm.h"
#include "evo/algorithms/safe_mutation.h"

namespace samara {

class SsgaConfig : public EvolutionConfig {
 public:
  int64_t population = 250;
  int64_t tournament = 5;
  int64_t births = 250;  // of a generation: between two lines of metrics
  int64_t window = 32;   // birth i is bred once births up to i - window are in the population
  double mutation_power = 0.1;
  MutationRule mutation;
  NoiseKind noise = NoiseKind::kNormal;
  InitKind init = InitKind::kFanIn;
  int64_t cache_megabytes = 2048;

  SsgaConfig() { budget.evaluations = 100'000, budget.test_every = 0, budget.test_episodes = 1; }
  std::unique_ptr<EvolutionConfig> Clone() const override {
    return std::make_unique<SsgaConfig>(*this);
  }
  void Bind(ConfigTable& table) override;
  std::string table() const override { return "ga"; }
  std::vector<std::string> Settle() override { return mutation.Unused("ga"); }
  Status Check(const NetworkDescription& network) const override;
  bool LooksAtStates() const override { return mutation.safe(); }
  std::unique_ptr<EvolutionAlgorithm> Make(const EvolutionSetup& setup) const override;
};

// The row of the registry.
std::unique_ptr<EvolutionConfig> MakeSsgaConfig();
Result<EvolutionSummary> DescribeSsga(std::string_view state);

// One individual as a state holds it.
struct SsgaMember {
  Genome genome;
  double fitness = 0;
  uint64_t episode = 0;  // key of the episode in which it had that
  bool operator==(const SsgaMember&) const = default;
};

struct SsgaState : EvolutionCounters {
  static constexpr uint32_t kVersion = 1;
  std::vector<SsgaMember> population;
  std::optional<SsgaMember> best;      // ever
  std::vector<float> best_parameters;  // unless its genome's seeds alone decide them
  Digest population_hash{};

  EvolutionSummary Summary() const;
  std::string Encode() const;                               // versioned
  static Result<SsgaState> Decode(std::string_view bytes);  // kBadData
};

}  // namespace samara
