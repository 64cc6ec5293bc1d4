// The Deep GA (Such et al. 2018, arXiv 1712.06567) and random search, its special case without
// parents.
//
// Truncation selection and Gaussian mutation, no crossover; genomes are seed lists (genome.h). Two
// loops: `uber_gpu`, the released accelerated program, and `uber_dist`, the
// distributed one, without validation. Everything random is keyed by (seed, purpose, generation,
// individual, episode), so a state and a configuration decide the next generation bit for bit,
// whatever plays the episodes.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/config.h"
#include "core/rng.h"
#include "evo/evaluate/evaluator.h"
#include "evo/evaluate/finished_episodes.h"
#include "evo/evaluate/generation_scheduler.h"
#include "evo/genome/genome.h"
#include "evo/genome/decode.h"

namespace samara {

struct GaConfig {
  std::string loop = "uber_gpu";
  int64_t population = 1000;
  int64_t parents = 20;  // truncation size T; 0 = random search
  int64_t elites = 1;    // uber_dist: kept with the fitness they had
  int64_t episodes = 1;  // per fitness
  int64_t validation_candidates = 10;
  int64_t validation_episodes = 30;
  int64_t test_episodes = 200;
  int64_t test_every = 1;  // generations; 0 = at the end only
  std::string elite_mode = "parent_slot";
  double mutation_power = 0.002;
  std::string mutation_schedule = "constant";
  double mutation_power_end = 0.002;
  int64_t mutation_schedule_frames = 1'000'000'000;
  std::string noise = "normal";
  std::string init = "fan_in";
  int64_t cache_megabytes = 1024;  // bound of the ancestors kept in memory
  int64_t generations = 0;         // budgets; 0 = none
  int64_t frames = 0;
};
void Bind(ConfigTable& table, GaConfig& config);
// kConfig when a generation has more episodes than 32 bits can number, or the network more
// parameters than ga.noise has values.
Status CheckSize(const GaConfig& config, const NetworkDescription& network);

// Lowers ga.parents and ga.validation_candidates to ga.population. Whether one was larger.
bool Clamp(GaConfig& config);

// sigma after `frames` counted frames; the end value from
// ga.mutation_schedule_frames on. Equal bits everywhere. An exponential schedule from or to 0 is 0
// after its beginning.
float MutationPowerAt(const GaConfig& config, uint64_t frames);

// Everything the next generation depends on.
struct GaState {
  uint64_t generation = 0;  // generations completed
  uint64_t frames = 0;      // population + validation
  uint64_t frames_test = 0;
  uint64_t steps = 0, episodes = 0;  // population + validation
  std::vector<Genome> parents;       // best first
  std::vector<double> parent_fitness;
  std::vector<double>
      parent_frames;  // of an episode, mean; 0 = unknown. For the order of play only
  bool has_elite = false;
  Genome elite;
  double elite_mean = 0;    // its validation mean in the generation that chose it
  double elite_frames = 0;  // like parent_frames
  Digest population_hash{};

  std::string Encode() const;                             // versioned
  static Result<GaState> Decode(std::string_view bytes);  // kBadData
};

// What one generation showed; `doc/metrics.md` has the names.
struct GenerationReport {
  std::vector<double> fitness;       // by individual
  std::vector<double> test_returns;  // empty when not tested
  double elite_mean = 0;
  uint64_t frames = 0, frames_test = 0;  // of this generation
  // until the last result of the population; from then until the last of validation, some of which
  // was played before; of the test
  double seconds_population = 0, seconds_validation = 0, seconds_test = 0;
  size_t lineages = 0, parents_distinct = 0;
};

// How episodes of this run are made from keys: the preset's no-op draw and frame caps.
struct EpisodeRule {
  std::function<int32_t(uint64_t key)> noops;  // empty: none
  int64_t frames_max = 0;                      // population and validation
  int64_t frames_max_test = 0;
  EpisodeSpec Make(uint64_t key, bool test) const {
    return {key, noops ? noops(key) : 0, test ? frames_max_test : frames_max};
  }
};

// For the live view; a snapshot.
struct GaProgress {
  std::string phase;  // empty: between phases
  size_t done = 0, total = 0;
  uint64_t generation = 0, frames = 0;                     // frames of the whole run so far
  double best = std::numeric_limits<double>::quiet_NaN();  // fitness in this generation so far
  // of all phases of the generation that is played; 0 between phases
  size_t episodes_done = 0, episodes_total = 0;
};

// Whether ga.generations or ga.frames is reached.
bool BudgetSpent(const GaConfig& config, const GaState& state);

class DeepGa {
 public:
  // `network` and `evaluator` outlive this object. Uses the configuration after Clamp.
  DeepGa(GaConfig config, uint64_t seed, const NetworkDescription& network, Evaluator& evaluator,
         EpisodeRule episodes);

  // One generation. kTryAgain when `stop` was set meanwhile: the state is then as before the call,
  // and the next call does not play again what had finished.
  Result<GenerationReport> Step(const StopToken& stop);
  // From now on Step hands the finished episodes of the running generation to `keep`, every
  // `seconds` and when it is stopped or fails; from any thread, one at a time, while Step runs.
  // False: not kept, given again with the next.
  void KeepFinished(double seconds, std::function<bool(const FinishedEpisodes&)> keep);
  // Takes back what was kept, for the next Step. Those of another generation are ignored.
  // REQUIRES: after Restore.
  void Reuse(const FinishedEpisodes& finished);
  bool BudgetSpent() const { return samara::BudgetSpent(config_, state_); }

  // Episodes of the generation that Step plays next, of all its phases.
  size_t EpisodesOfNext() const;

  const GaState& state() const { return state_; }
  void Restore(GaState state);
  GaProgress progress() const;  // any thread

  // Fresh test episodes of one genome, keyed by `purpose`; nothing of them is kept.
  Result<std::vector<EpisodeResult>> Play(const Genome& genome, Purpose purpose, size_t episodes,
                                          const StopToken& stop);

 private:
  using Results = std::vector<EpisodeResult>;
  class Playing;
  // Member i of the population that is playing. It is a function of the state, so a generation
  // holds no genomes but its parents', however many members and mutations it has.
  Genome Member(uint64_t i) const;
  bool BornOfParent(uint64_t i) const;
  uint64_t ParentOf(uint64_t i) const;
  Genome Fresh(uint64_t individual) const;
  Genome Mutate(const Genome& parent, uint64_t individual) const;
  uint64_t NoiseKey(Purpose purpose, uint64_t individual) const;
  double FramesExpected(uint64_t i) const;
  GenerationPlan Plan() const;
  bool Validates() const;
  size_t ValidationEpisodes() const;
  size_t TestEpisodes() const;
  Task PopulationTask(uint32_t i, uint64_t episode) const;
  Task ValidationTask(uint32_t individual, uint64_t episode) const;
  Genome Individual(uint32_t i) const;  // a member, or the old elite
  std::vector<uint32_t> Candidates(std::span<const uint32_t> order) const;
  Status Validate(Playing& playing, const EpisodeMeans& played, std::span<const uint32_t> order,
                  GaState& next);
  void KeepBestSingle(const EpisodeMeans& played, std::span<const uint32_t> order,
                      GaState& next) const;
  void SelectParents(const EpisodeMeans& played, std::span<const uint32_t> order,
                     GaState& next) const;
  void SelectDistributed(const EpisodeMeans& played, std::span<const uint32_t> order,
                         GaState& next) const;
  std::vector<Task> TestTasks(Purpose purpose, size_t episodes) const;
  void Note(Phase phase, uint32_t index, const EpisodeResult& result);
  void KeepNow();
  using GenomeOf = std::function<Genome(uint32_t)>;  // by handle
  class Parameters;
  Result<Results> PlayTest(std::span<const Task> tasks, const Genome& genome, const StopToken& stop,
                           bool keep);
  void Show(std::function<GaProgress()> progress, uint64_t frames_before);

  // constant after construction
  GaConfig config_;
  const uint64_t seed_;
  const NetworkDescription& network_;
  Evaluator& evaluator_;
  const EpisodeRule episodes_;
  NoiseKind noise_;
  InitKind init_;
  // synchronised by itself
  AncestorCache cache_;
  // written only by the thread that calls Step, and not while episodes are played
  GaState state_;
  double keep_seconds_ = 0;
  std::function<bool(const FinishedEpisodes&)> keep_;
  // written by it, or by the thread that posts a result; of the generation after state_
  std::map<Phase, ResultsByIndex> finished_, unkept_;
  SteadyTime kept_at_ = Now();
  mutable std::mutex mu_;
  // guarded by mu_
  std::function<GaProgress()> shown_;  // of what is played; its frames are on top of the others
  uint64_t generation_ = 0;            // of state_
  uint64_t frames_before_ = 0;         // counted frames before that
};

// Strictly better; NaN is worse than any number.
bool IsBetter(double a, double b);
// Order of individuals by fitness, best first; NaN last, ties to the lower index.
std::vector<uint32_t> RankDescending(std::span<const double> fitness);

}  // namespace samara
