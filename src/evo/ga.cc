#include "evo/ga.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "core/clock.h"
#include "core/rng.h"
#include "core/thread.h"
#include "evo/genome/noise.h"
#include "evo/genome/population_hash.h"

namespace samara {
namespace {

constexpr uint64_t kTableStride = 64;  // native table runs start slices at multiples of it (1.1)

void Account(std::span<const EpisodeResult> results, GaState& state) {
  for (const auto& r : results) state.frames += r.frames, state.steps += r.steps;
  state.episodes += results.size();
}

}  // namespace

bool IsBetter(double a, double b) { return std::isnan(b) ? !std::isnan(a) : a > b; }

std::vector<uint32_t> RankDescending(std::span<const double> fitness) {
  std::vector<uint32_t> order(fitness.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return IsBetter(fitness[a], fitness[b]); });
  return order;
}

// Parameters of the genomes that handles stand for, with the help of the kept ancestors.
class DeepGa::Parameters : public ParameterSource {
 public:
  Parameters(GenomeOf genome, AncestorCache& cache) : genome_(std::move(genome)), cache_(cache) {}
  void Write(PolicyHandle policy, std::span<float> canonical) const override {
    cache_.Materialise(genome_(policy.id), canonical);
  }

 private:
  const GenomeOf genome_;
  AncestorCache& cache_;
};

// Population and validation, played on a thread of its own: Step goes on as soon as the population
// is complete, while validation is played.
class DeepGa::Playing {
 public:
  Playing(DeepGa& ga, const StopToken& stop)
      : ga_(ga),
        work_(
            ga.Plan(), [this, &stop] { return stopped_ || (stop && stop()); },
            ga.finished_[Phase::kPopulation], ga.finished_[Phase::kValidation]),
        parameters_([&ga](uint32_t i) { return ga.Individual(i); }, ga.cache_) {
    work_.OnPost(
        [this](Phase phase, uint32_t i, const EpisodeResult& r) { ga_.Note(phase, i, r); });
    ga_.Show([this] { return Progress(); }, ga_.state_.frames);
  }
  ~Playing() { ga_.Show(nullptr, ga_.frames_before_); }
  Playing(const Playing&) = delete;
  Playing& operator=(const Playing&) = delete;

  Status Start() {
    return thread_.Start("episodes", 1, [this](size_t) {
      played_ = ga_.evaluator_.Play(parameters_, work_);
      work_.EvaluatorIsDone();
    });
  }
  // Waits until every member has played.
  Status Population() { return work_.WaitForPopulation() ? Status::Ok() : Ended("population"); }
  // Waits until every candidate has.
  Status Validation() { return Ended("validation"); }
  const GenerationWork& work() const { return work_; }

 private:
  Status Ended(const char* phase) {
    thread_.Join();
    ga_.Show(nullptr, ga_.state_.frames + work_.counts().frames);
    if (work_.Complete() && played_.ok()) return played_;
    ga_.KeepNow();
    RETURN_IF_ERROR(played_);
    return {Code::kTryAgain, std::string("stopped while playing the ") + phase};
  }
  GaProgress Progress() const {
    const GenerationWork::Counts c = work_.counts();
    const size_t before = c.validating ? work_.population().size() : 0;
    return {c.validating ? "validation" : "population",
            c.done,
            c.total,
            0,
            c.frames,
            c.best,
            before + c.done,
            episodes_};
  }

  DeepGa& ga_;
  std::atomic<bool> stopped_{false};
  GenerationWork work_;
  const size_t episodes_ = ga_.EpisodesOfNext();
  const Parameters parameters_;
  Status played_;  // what the evaluator said, once the thread has ended
  ThreadGroup thread_{[this] { stopped_ = true; }};  // last: it uses everything above
};

DeepGa::DeepGa(GaConfig config, uint64_t seed, const NetworkDescription& network,
               Evaluator& evaluator, EpisodeRule episodes)
    : config_(std::move(config)),
      seed_(seed),
      network_(network),
      evaluator_(evaluator),
      episodes_(std::move(episodes)),
      noise_(config_.noise == "normal"      ? NoiseKind::kNormal
             : config_.noise == "quantile8" ? NoiseKind::kQuantile8
                                            : NoiseKind::kTable),
      init_(config_.init == "fan_in" ? InitKind::kFanIn : InitKind::kUnitNorm),
      cache_(network, static_cast<size_t>(config_.cache_megabytes) << 20) {
  Clamp(config_);
}

void DeepGa::Restore(GaState state) {
  state_ = std::move(state);
  state_.parent_frames.resize(state_.parents.size());  // unknown where nobody said
  finished_.clear(), unkept_.clear();
  kept_at_ = Now();
  const std::lock_guard lock(mu_);
  generation_ = state_.generation;
  frames_before_ = state_.frames;
}

bool BudgetSpent(const GaConfig& config, const GaState& state) {
  const auto reached = [](uint64_t value, int64_t budget) {
    return budget > 0 && value >= static_cast<uint64_t>(budget);
  };
  return reached(state.generation, config.generations) || reached(state.frames, config.frames);
}

void DeepGa::KeepFinished(double seconds, std::function<bool(const FinishedEpisodes&)> keep) {
  keep_seconds_ = seconds, keep_ = std::move(keep);
}

void DeepGa::Reuse(const FinishedEpisodes& finished) {
  if (finished.generation != state_.generation + 1) return;
  finished_[finished.phase].insert(finished.results.begin(), finished.results.end());
}

void DeepGa::Note(Phase phase, uint32_t index, const EpisodeResult& result) {
  finished_[phase][index] = unkept_[phase][index] = result;
  if (SecondsSince(kept_at_) >= keep_seconds_) KeepNow();
}

void DeepGa::KeepNow() {
  kept_at_ = Now();
  if (!keep_) return;
  std::erase_if(unkept_, [this](const auto& phase) {
    return keep_({state_.generation + 1, phase.first, phase.second});
  });
}

// One generation; the numbers are those of doc/deep-ga.md.
Result<GenerationReport> DeepGa::Step(const StopToken& stop) {
  GaState next = state_;
  next.generation = state_.generation + 1;
  GenerationReport report;
  const bool distributed = config_.loop == "uber_dist";

  // 1 breed: Member(i) says what each is, its parent's parameters are at hand
  for (const Genome& parent : state_.parents) cache_.Keep(parent);

  // 2 every member plays; fitness = undiscounted, unclipped return. Slots that the last episodes
  //   leave idle validate ahead of time
  const SteadyTime start = Now();
  Playing playing(*this, stop);
  RETURN_IF_ERROR(playing.Start());
  RETURN_IF_ERROR(playing.Population());
  const EpisodeMeans& played = playing.work().means();
  const std::vector<uint32_t> order = RankDescending(played.fitness);
  Account(playing.work().population(), next);
  report.seconds_population = SecondsSince(start);

  // 3 validation chooses the elite. The parents that it cannot replace are built meanwhile
  const SteadyTime validation = Now();
  for (int64_t i = 0; Validates() && i + 1 < config_.parents; ++i)
    cache_.Keep(Member(order[static_cast<size_t>(i)]));
  RETURN_IF_ERROR(Validate(playing, played, order, next));
  if (Validates()) report.seconds_validation = SecondsSince(validation);

  // 4 parents of the next generation
  if (distributed)
    SelectDistributed(played, order, next);
  else
    SelectParents(played, order, next);
  next.population_hash =
      PopulationHash([&](size_t i) { return Member(i); }, played.fitness, next.elite);

  // 5 test of the elite on fresh episodes, not counted in frames
  const SteadyTime test = Now();
  if (const size_t episodes = TestEpisodes(); episodes > 0) {
    const auto tasks = TestTasks(Purpose::kEpisodeTest, episodes);
    ASSIGN_OR_RETURN(const Results results, PlayTest(tasks, next.elite, stop, /*keep=*/true));
    for (const auto& r : results)
      report.test_returns.push_back(r.fitness), report.frames_test += r.frames;
    next.frames_test += report.frames_test;
  }
  report.seconds_test = SecondsSince(test);

  // 6 the caller makes the new state durable before it reports the generation
  report.fitness = played.fitness;
  report.elite_mean = next.elite_mean;
  report.frames = next.frames - state_.frames;
  std::set<uint64_t> initial;
  for (const Genome& parent : next.parents) initial.insert(parent.initial);
  report.lineages = initial.size();
  std::set<uint64_t> chosen;
  for (uint64_t i = 0; i < report.fitness.size(); ++i) {
    if (BornOfParent(i)) chosen.insert(ParentOf(i));
  }
  report.parents_distinct = chosen.size();
  Restore(std::move(next));
  return report;
}

Genome DeepGa::Member(uint64_t i) const {
  if (state_.parents.empty()) return Fresh(i);
  return BornOfParent(i) ? Mutate(state_.parents[ParentOf(i)], i) : state_.elite;
}

// Not of the first generation, and not the elite that takes the last place unchanged.
bool DeepGa::BornOfParent(uint64_t i) const {
  const bool last = i + 1 == static_cast<uint64_t>(config_.population);
  const bool elite = last && state_.has_elite && config_.elite_mode == "member";
  return !state_.parents.empty() && !elite;
}

uint64_t DeepGa::ParentOf(uint64_t i) const {
  const CounterRng rng(DeriveKey(seed_, Purpose::kParentChoice, state_.generation + 1, i));
  return rng.UniformInt(0, state_.parents.size());
}

Genome DeepGa::Fresh(uint64_t individual) const {
  return {noise_, init_, NoiseKey(Purpose::kInitialGenome, individual), {}};
}

Genome DeepGa::Mutate(const Genome& parent, uint64_t individual) const {
  Genome child{parent.noise, parent.init, parent.initial, {}};
  child.mutations.reserve(parent.mutations.size() + 1);
  child.mutations = parent.mutations;
  child.mutations.push_back(
      {NoiseKey(Purpose::kMutation, individual), MutationPowerAt(config_, state_.frames)});
  return child;
}

uint64_t DeepGa::NoiseKey(Purpose purpose, uint64_t individual) const {
  const uint64_t key = DeriveKey(seed_, purpose, state_.generation + 1, individual);
  if (noise_ != NoiseKind::kTable) return key;
  const uint64_t starts = (kNoiseTableSize - network_.parameter_count) / kTableStride + 1;
  return CounterRng(key).UniformInt(0, starts) * kTableStride;
}

// A child plays about as long as its parent did. Unknown: the first generation, random search.
double DeepGa::FramesExpected(uint64_t i) const {
  if (state_.parents.empty()) return 0;
  return BornOfParent(i) ? state_.parent_frames[ParentOf(i)] : state_.elite_frames;
}

GenerationPlan DeepGa::Plan() const {
  GenerationPlan plan;
  plan.episodes = static_cast<size_t>(config_.episodes);
  for (uint32_t i = 0; i < static_cast<uint64_t>(config_.population); ++i)
    for (uint64_t e = 0; e < plan.episodes; ++e) plan.population.push_back(PopulationTask(i, e));
  plan.validation_episodes = Validates() ? static_cast<size_t>(config_.validation_episodes) : 0;
  plan.elite_frames = state_.elite_frames;
  plan.guess = !evaluator_.shared();
  plan.candidates = [this](std::span<const double> fitness) {
    return Candidates(RankDescending(fitness));
  };
  plan.validation = [this](uint32_t i, uint64_t e) { return ValidationTask(i, e); };
  return plan;
}

bool DeepGa::Validates() const {
  return config_.loop != "uber_dist" && config_.validation_candidates > 0 &&
         config_.validation_episodes > 0;
}

size_t DeepGa::ValidationEpisodes() const {
  if (!Validates()) return 0;
  // as Candidates chooses them
  const int64_t candidates =
      std::max<int64_t>(config_.validation_candidates, state_.has_elite ? 2 : 1);
  return static_cast<size_t>(candidates * config_.validation_episodes);
}

// Of the generation after state_.
size_t DeepGa::TestEpisodes() const {
  const auto every = static_cast<uint64_t>(config_.test_every);
  const bool due = every > 0 && (state_.generation + 1) % every == 0;
  return due ? static_cast<size_t>(config_.test_episodes) : 0;
}

size_t DeepGa::EpisodesOfNext() const {
  return static_cast<size_t>(config_.population * config_.episodes) + ValidationEpisodes() +
         TestEpisodes();
}

Task DeepGa::PopulationTask(uint32_t i, uint64_t episode) const {
  const uint64_t key =
      DeriveKey(seed_, Purpose::kEpisodePopulation, state_.generation + 1, i, episode);
  return {{i, 0}, Role::kTrain, episodes_.Make(key, false), FramesExpected(i)};
}

// Keyed by the individual: who is validated when and in which company changes nothing.
Task DeepGa::ValidationTask(uint32_t individual, uint64_t episode) const {
  const uint64_t key =
      DeriveKey(seed_, Purpose::kEpisodeValidation, state_.generation + 1, individual, episode);
  return {{individual, 0}, Role::kEvaluate, episodes_.Make(key, false)};
}

Genome DeepGa::Individual(uint32_t i) const {
  return i < static_cast<uint64_t>(config_.population) ? Member(i) : state_.elite;
}

// The top members; the previous elite defends its place in the last one, or, when there is room for
// one only, in a place of its own.
std::vector<uint32_t> DeepGa::Candidates(std::span<const uint32_t> order) const {
  const auto n = static_cast<size_t>(config_.validation_candidates);
  const size_t members = state_.has_elite && n > 1 ? n - 1 : n;
  std::vector<uint32_t> candidates(order.begin(), order.begin() + static_cast<ptrdiff_t>(members));
  if (state_.has_elite) candidates.push_back(static_cast<uint32_t>(config_.population));
  return candidates;
}

// Without validation the best single fitness so far is the elite.
void DeepGa::KeepBestSingle(const EpisodeMeans& played, std::span<const uint32_t> order,
                            GaState& next) const {
  const uint32_t best = order[0];
  if (next.has_elite && !IsBetter(played.fitness[best], next.elite_mean)) return;
  next.elite = Member(best), next.has_elite = true;
  next.elite_mean = played.fitness[best], next.elite_frames = played.frames[best];
}

Status DeepGa::Validate(Playing& playing, const EpisodeMeans& played,
                        std::span<const uint32_t> order, GaState& next) {
  RETURN_IF_ERROR(playing.Validation());
  if (config_.loop == "uber_dist") return Status::Ok();
  if (!Validates()) {
    KeepBestSingle(played, order, next);
    return Status::Ok();
  }
  const std::vector<uint32_t> candidates = Candidates(order);
  EpisodeMeans validated;
  for (const uint32_t i : candidates) {
    const Results results = playing.work().ValidationOf(i);
    Account(results, next);
    validated.Add(results);
  }
  // the elite is judged on its own validation mean
  const uint32_t best = RankDescending(validated.fitness)[0];
  next.elite = Individual(candidates[best]), next.has_elite = true;
  next.elite_mean = validated.fitness[best], next.elite_frames = validated.frames[best];
  return Status::Ok();
}

void DeepGa::SelectParents(const EpisodeMeans& played, std::span<const uint32_t> order,
                           GaState& next) const {
  next.parents.clear(), next.parent_fitness.clear(), next.parent_frames.clear();
  for (size_t i = 0; i < static_cast<size_t>(config_.parents); ++i) {
    next.parents.push_back(Member(order[i]));
    next.parent_fitness.push_back(played.fitness[order[i]]);
    next.parent_frames.push_back(played.frames[order[i]]);
  }
  const bool kept =
      std::find(next.parents.begin(), next.parents.end(), next.elite) != next.parents.end();
  if (!next.parents.empty() && !kept) {
    next.parents.back() = next.elite;
    next.parent_fitness.back() = next.elite_mean;
    next.parent_frames.back() = next.elite_frames;
  }
}

// parents = the best T of the kept elites and the results (es_distributed/ga.py)
void DeepGa::SelectDistributed(const EpisodeMeans& played, std::span<const uint32_t> order,
                               GaState& next) const {
  // random search has no parents: it keeps the best single episode
  if (config_.parents == 0) return KeepBestSingle(played, order, next);
  const size_t elites = std::min(next.parents.size(), static_cast<size_t>(config_.elites));
  std::vector<Genome> pool(next.parents.begin(),
                           next.parents.begin() + static_cast<ptrdiff_t>(elites));
  EpisodeMeans scores{next.parent_fitness, next.parent_frames};
  scores.fitness.resize(elites), scores.frames.resize(elites);
  const auto t = static_cast<size_t>(config_.parents);  // at most the population
  for (size_t i = 0; i < t; ++i) {
    pool.push_back(Member(order[i]));
    scores.fitness.push_back(played.fitness[order[i]]);
    scores.frames.push_back(played.frames[order[i]]);
  }
  const std::vector<uint32_t> best = RankDescending(scores.fitness);
  next.parents.clear(), next.parent_fitness.clear(), next.parent_frames.clear();
  for (size_t i = 0; i < t; ++i) {
    next.parents.push_back(pool[best[i]]);
    next.parent_fitness.push_back(scores.fitness[best[i]]);
    next.parent_frames.push_back(scores.frames[best[i]]);
  }
  next.elite = next.parents[0], next.has_elite = true;
  next.elite_mean = next.parent_fitness[0], next.elite_frames = next.parent_frames[0];
}

std::vector<Task> DeepGa::TestTasks(Purpose purpose, size_t episodes) const {
  std::vector<Task> tasks;
  for (size_t e = 0; e < episodes; ++e) {
    const uint64_t key = DeriveKey(seed_, purpose, state_.generation + 1, 0, e);
    tasks.push_back({{0, 0}, Role::kEvaluate, episodes_.Make(key, true)});
  }
  return tasks;
}

Result<std::vector<EpisodeResult>> DeepGa::Play(const Genome& genome, Purpose purpose,
                                                size_t episodes, const StopToken& stop) {
  return PlayTest(TestTasks(purpose, episodes), genome, stop, /*keep=*/false);
}

Result<std::vector<EpisodeResult>> DeepGa::PlayTest(std::span<const Task> tasks,
                                                    const Genome& genome, const StopToken& stop,
                                                    bool keep) {
  LocalWork work(tasks, stop, keep ? finished_[Phase::kTest] : ResultsByIndex());
  if (keep) work.OnPost([this](uint32_t i, const EpisodeResult& r) { Note(Phase::kTest, i, r); });
  const uint64_t frames = progress().frames;
  // `keep`: the last phase of a generation
  const size_t all = keep ? EpisodesOfNext() : 0, before = keep ? all - tasks.size() : 0;
  Show(
      [&, all, before] {
        GaProgress progress{"test", work.posted(), tasks.size()};
        progress.episodes_done = before + (keep ? work.posted() : 0), progress.episodes_total = all;
        return progress;
      },
      frames);
  const Parameters parameters([&](uint32_t) { return genome; }, cache_);
  const Status status = evaluator_.Play(parameters, work);
  Show(nullptr, frames);
  if (work.posted() == tasks.size() && status.ok()) return work.TakeResults();
  KeepNow();
  RETURN_IF_ERROR(status);
  return Status(Code::kTryAgain, "stopped while playing the test");
}

void DeepGa::Show(std::function<GaProgress()> progress, uint64_t frames_before) {
  const std::lock_guard lock(mu_);
  shown_ = std::move(progress), frames_before_ = frames_before;
}

GaProgress DeepGa::progress() const {
  const std::lock_guard lock(mu_);
  if (!shown_) return {"", 0, 0, generation_, frames_before_};
  GaProgress progress = shown_();
  progress.generation = generation_ + 1;
  progress.frames += frames_before_;
  return progress;
}

}  // namespace samara
