// The Deep GA (Such et al. 2018, arXiv 1712.06567) and random search, its special case without
// parents.
//
// Truncation selection and Gaussian mutation, no crossover; genomes are seed lists (genome.h). Two
// loops: `uber_gpu`, the released accelerated program, and `uber_dist`, the distributed one,
// without validation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "evo/algorithms/algorithm.h"
#include "evo/algorithms/safe_mutation.h"
#include "evo/algorithms/schedule.h"

namespace samara {

enum class GaLoop { kUberGpu, kUberDist };
// Criterion by which a member becomes a parent: return, novelty, or a cell of behaviours.
enum class GaSelection { kByReturn, kByNovelty, kByCell };
// Role of the elite in the next population: one of its parents, or also a member.
enum class EliteMode { kParentSlot, kMember };

class GaConfig : public EvolutionConfig {
 public:
  GaLoop loop = GaLoop::kUberGpu;
  int64_t population = 1000;
  int64_t parents = 20;  // truncation size T; 0 = random search
  int64_t elites = 1;    // uber_dist: kept with the fitness they had
  int64_t episodes = 1;  // per fitness
  int64_t validation_candidates = 10;
  int64_t validation_episodes = 30;
  EliteMode elite_mode = EliteMode::kParentSlot;
  double mutation_power = 0.002;
  Schedule mutation_schedule = Schedule::kConstant;
  double mutation_power_end = 0.002;
  int64_t mutation_schedule_frames = 1'000'000'000;
  MutationRule mutation;
  NoiseKind noise = NoiseKind::kNormal;
  InitKind init = InitKind::kFanIn;
  int64_t cache_megabytes = 1024;  // bound of the ancestors kept in memory

  std::unique_ptr<EvolutionConfig> Clone() const override {
    return std::make_unique<GaConfig>(*this);
  }
  void Bind(ConfigTable& table) override;
  // Adds the rows in their order, which is part of a configuration's hash: with validation where
  // selection is by return, with a number of parents where it is not by cell.
  void BindRows(ConfigTable& table, GaSelection selection);
  std::string table() const override { return "ga"; }
  // Lowers parents and validation_candidates to the population.
  std::vector<std::string> Settle() override;
  // kConfig when a generation has more episodes than 32 bits can number, or the network more
  // parameters than the table of noise has values.
  Status Check(const NetworkDescription& network) const override;
  bool TakesInitialPolicy() const override { return parents > 0; }
  bool LooksAtStates() const override { return mutation.safe(); }
  std::unique_ptr<EvolutionAlgorithm> Make(const EvolutionSetup& setup) const override;
};

// sigma after `frames` counted frames; the end value from mutation_schedule_frames on. Equal bits
// everywhere. An exponential schedule from or to 0 is 0 after its beginning.
float MutationPowerAt(const GaConfig& config, uint64_t frames);

// The rows of the registry. Random search has the keys of the GA and no parents.
std::unique_ptr<EvolutionConfig> MakeGaConfig();
std::unique_ptr<EvolutionConfig> MakeRandomSearchConfig();
Result<EvolutionSummary> DescribeGa(std::string_view state);

// A genome with what it achieved.
struct Parent {
  Genome genome;
  double fitness = 0;  // of the elite: its validation mean in the generation that chose it
  double frames = 0;   // of an episode, mean; 0 = unknown. For the order of play only
  // With safe mutations: key of the episode whose states its children's mutations look at.
  uint64_t episode = 0;
  bool operator==(const Parent&) const = default;
};

// Everything the next generation depends on.
struct GaState : EvolutionCounters {
  // 1: without the lengths of episodes, which are unknown then. 2: without what safe mutations
  // need; still written where there is none of it.
  static constexpr uint32_t kPlainVersion = 2, kVersion = 3;
  std::vector<Parent> parents;  // best first
  std::optional<Parent> elite;
  std::vector<float> elite_parameters;  // unless its genome's seeds alone decide them
  Digest population_hash{};

  EvolutionSummary Summary() const;
  std::string Encode() const;                             // versioned
  static Result<GaState> Decode(std::string_view bytes);  // kBadData
};

}  // namespace samara
