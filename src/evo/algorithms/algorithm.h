// The interface of evolution algorithms, and the parameters of one (registry.h lists them).
//
// Everything random is keyed by (seed, purpose, generation, individual, episode), so a state and a
// configuration decide the next generation bit for bit, whatever plays the episodes.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/config.h"
#include "core/sha256.h"
#include "evo/evaluate/generation_player.h"
#include "evo/genome/genome.h"
#include "nn/network.h"

namespace samara {

// Limit of the state that each generation records: a record of the journal holds 256 MB.
constexpr double kStateBytesMax = 240e6;
// kConfig: a state of up to `floats` numbers for each parameter may exceed it. `smaller`: what
// helps besides a smaller network.
Status CheckStateBytes(const NetworkDescription& network, double floats,
                       std::string_view smaller = {});
// kConfig: a phase of a generation with 4e9 episodes or more, which are numbered by 32 bits.
// `keys`: those that set their number, with their values.
Status CheckEpisodes(double episodes, std::string_view keys);

// Sums over a run so far.
struct EvolutionCounters {
  uint64_t generation = 0;  // generations completed
  uint64_t frames = 0;      // population + validation
  uint64_t frames_test = 0;
  uint64_t steps = 0, episodes = 0;  // population + validation
  // Adds episodes of population or validation.
  void Count(std::span<const EpisodeResult> results);
};

// The policy that an algorithm would return: parameters in canonical order, or a genome that
// decodes to them.
using Candidate = std::variant<Genome, std::vector<float>>;
// The parameters of `candidate`; `initial`: that of its run. kBadData when it does not fit the
// network.
Result<std::vector<float>> ParametersOf(const Candidate& candidate,
                                        const NetworkDescription& network,
                                        const InitialPolicy* initial = nullptr);

// A candidate of a state, with what it achieved.
struct NamedCandidate {
  std::string name;  // "elite", "centre", "parent:0"
  Candidate candidate;
  double fitness = std::numeric_limits<double>::quiet_NaN();
};

// An individual of a state by its line of mutations, which of safe ones does not rebuild it alone.
struct ScoredGenome {
  Genome genome;
  double fitness = std::numeric_limits<double>::quiet_NaN();
};

// Summary of a state, for callers that know no algorithm. REQUIRES of `best`: generation > 0.
struct EvolutionSummary : EvolutionCounters {
  Digest population_hash{};  // equal for any number of threads, actors, ranks and kills
  Candidate best;
  // of its validation in the generation that chose it; without validation the fitness that did
  double best_mean = 0;
};

// Results of one generation; `doc/metrics.md` has the names.
struct GenerationReport {
  // Adds episodes of the population, so many of each member, to `evaluations` and `positions`.
  void AddPopulation(std::span<const EpisodeResult> played, size_t episodes);

  std::vector<double> fitness;    // by individual: returns, whatever else selects
  bool fitness_is_return = true;  // false: what a task's criterion cannot be compared with
  uint64_t evaluations = 0;       // episodes of the population
  // Final positions, individual by individual, of their first episodes; empty where the environment
  // has none.
  std::vector<float> positions;
  uint64_t validated = 0;  // episodes of validation behind the summary's best_mean; 0 = none
  std::vector<double> test_returns;      // of the best candidate; empty when not tested
  uint64_t frames = 0, frames_test = 0;  // of this generation
  uint64_t frames_reused = 0;            // of `frames`: of episodes that an earlier start finished
  // until the last result of the population; from then until the last of validation, some of which
  // was played before; of the test
  double seconds_population = 0, seconds_validation = 0, seconds_test = 0;
  // members of the line of metrics that are the algorithm's own
  nlohmann::json metrics = nlohmann::json::object();
  std::string note;  // a few words of its own for the log's line
};

// Arguments of an algorithm's construction. All that it refers to outlives it.
struct EvolutionSetup {
  uint64_t seed;
  const NetworkDescription& network;
  Evaluator& evaluator;
  EpisodeRule episodes;
  // The policy to begin from (run.init_from), null for none: first centre, or first parent. Only
  // where EvolutionConfig::TakesInitialPolicy.
  const InitialPolicy* initial = nullptr;
};

// Thread safety: progress from any thread; everything else from one.
class EvolutionAlgorithm {
 public:
  explicit EvolutionAlgorithm(const EvolutionSetup& setup)
      : network_(setup.network),
        initial_(setup.initial),
        player_(setup.seed, setup.evaluator, setup.episodes) {}
  virtual ~EvolutionAlgorithm() = default;
  EvolutionAlgorithm(const EvolutionAlgorithm&) = delete;
  EvolutionAlgorithm& operator=(const EvolutionAlgorithm&) = delete;

  // One generation. kTryAgain when `stop` was set meanwhile: the state is then as before the call,
  // and the next call does not play again what had finished.
  virtual Result<GenerationReport> Step(const StopToken& stop) = 0;
  // Episodes that Step plays next, in all its phases.
  virtual size_t EpisodesOfNext() const = 0;

  // Everything that the next generation depends on; versioned bytes.
  virtual std::string EncodeState() const = 0;
  virtual Status RestoreState(std::string_view bytes) = 0;  // kBadData
  // The part of a state that only grows (an archive of behaviours), apart from EncodeState: the
  // journal keeps each entry once. Number of entries; bytes of those from number `first` on; adding
  // entries of such bytes, all of them before RestoreState (kBadData).
  virtual size_t ArchiveSize() const { return 0; }
  virtual std::string EncodeArchive(size_t /*first*/) const { return {}; }
  virtual Status RestoreArchive(std::string_view bytes);
  // Whether the archive's bytes up to an entry stay what they were. False: they are those entries
  // that later ones have not replaced, and adding entries again changes nothing.
  virtual bool ArchiveOnlyGrows() const { return true; }
  // Solutions that the algorithm collects, for people: CSV with a head line. Empty: it collects
  // none.
  virtual std::string ArchiveCsv() const { return {}; }
  virtual EvolutionSummary summary() const = 0;
  // Policies that `samara export --individual NAME` finds in the state: the best candidate first,
  // under a name of the algorithm's own, then others that it holds.
  virtual std::vector<NamedCandidate> Candidates() const;
  // The individuals that the state holds, the best first, also those that Candidates leaves out.
  // Empty: the algorithm evolves vectors.
  virtual std::vector<ScoredGenome> Genomes() const { return {}; }
  // The population that Step plays next, rebuilt from the state: its size and its members, in the
  // order of GenerationReport::fitness. 0: it cannot be rebuilt.
  virtual uint64_t MembersOfNext() const { return 0; }
  // REQUIRES: i < MembersOfNext().
  virtual Candidate MemberOfNext(uint64_t /*i*/) const { return summary().best; }

  // From now on Step hands the finished episodes of the running generation to `keep`
  // (GenerationPlayer::KeepFinished).
  void KeepFinished(double seconds, std::function<bool(const FinishedEpisodes&)> keep) {
    player_.KeepFinished(seconds, std::move(keep));
  }
  // Episodes that were kept, for the next Step. REQUIRES: after RestoreState.
  void Reuse(const FinishedEpisodes& finished) { player_.Reuse(finished); }
  EvolutionProgress progress() const { return player_.progress(); }

  // Fresh test episodes of the best candidate, keyed by `purpose`; nothing of them is kept.
  Result<std::vector<EpisodeResult>> PlayBest(Purpose purpose, size_t episodes,
                                              const StopToken& stop);

 protected:
  // Returns the first parameters of an algorithm with one centre: EvolutionSetup::initial, else
  // fresh parameters.
  std::vector<float> FirstParameters(InitKind init = InitKind::kFanIn) const;
  // The same with zeros in place of drawn weights.
  std::vector<float> ZeroParameters() const;

  const NetworkDescription& network_;
  const InitialPolicy* const initial_;
  GenerationPlayer player_;
};

// When a run ends, and the tests of its best candidate.
struct EvolutionBudget {
  int64_t generations = 0, frames = 0;  // 0 = none
  int64_t evaluations = 0;              // episodes of population and validation; 0 = none
  int64_t test_episodes = 200;
  int64_t test_every = 1;  // generations; 0 = at the end only
  bool Spent(const EvolutionCounters& counters) const;
  // Episodes of the test that belongs to `generation`.
  size_t TestEpisodes(uint64_t generation) const;
};
// Add the rows TABLE.test_episodes and TABLE.test_every; TABLE.generations and TABLE.frames.
void BindTest(ConfigTable& table, const std::string& name, EvolutionBudget& budget);
void BindBudget(ConfigTable& table, const std::string& name, EvolutionBudget& budget);

// The parameters of one algorithm. Copied by Clone, so a configuration is a value (core/cloned.h).
class EvolutionConfig {
 public:
  virtual ~EvolutionConfig() = default;
  virtual std::unique_ptr<EvolutionConfig> Clone() const = 0;
  // Adds the algorithm's rows, all in one table of keys: that of table().
  virtual void Bind(ConfigTable& table) = 0;
  virtual std::string table() const = 0;  // "ga"
  // Makes the parameters what the run will use; one warning a line about what was changed.
  virtual std::vector<std::string> Settle() { return {}; }
  // kConfig when the algorithm cannot evolve `network` with these parameters.
  virtual Status Check(const NetworkDescription& network) const = 0;
  // Whether EvolutionSetup::initial has a use.
  virtual bool TakesInitialPolicy() const { return false; }
  // Whether the algorithm itself keeps the statistics of the network's layers, which are measured
  // of a reference batch otherwise.
  virtual bool KeepsStatistics(const NetworkDescription& /*network*/) const { return false; }
  // Whether it looks at the states of episodes (Task::experience), which no device records.
  virtual bool LooksAtStates() const { return false; }
  // Returns what episodes of population and validation record. kConfig when the environment has
  // none of it.
  virtual Result<RecordKind> Records(const EnvironmentSpec& /*environment*/,
                                     const NetworkDescription& /*network*/) const {
    return RecordKind::kNothing;
  }
  // Whether states and what is made of them depend on the environment's specification too.
  virtual bool DependsOnEnvironment() const { return false; }
  virtual std::unique_ptr<EvolutionAlgorithm> Make(const EvolutionSetup& setup) const = 0;

  EvolutionBudget budget;
};

}  // namespace samara
