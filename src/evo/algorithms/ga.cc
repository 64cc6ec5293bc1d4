#include "evo/algorithms/ga.h"

#include <algorithm>
#include <limits>
#include <set>

#include "core/clock.h"
#include "evo/algorithms/ranking.h"
#include "evo/genome/decode.h"
#include "evo/genome/noise.h"
#include "evo/genome/population_hash.h"

namespace samara {
namespace {

class DeepGa : public EvolutionAlgorithm {
 public:
  DeepGa(const GaConfig& config, const EvolutionSetup& setup)
      : EvolutionAlgorithm(setup),
        config_(config),
        cache_(setup.network, static_cast<size_t>(config.cache_megabytes) << 20, setup.initial) {
    if (initial_ != nullptr) BeginFrom(*initial_);
  }

  Result<GenerationReport> Step(const StopToken& stop) override;
  size_t EpisodesOfNext() const override;
  std::string EncodeState() const override { return state_.Encode(); }
  Status RestoreState(std::string_view bytes) override;
  EvolutionSummary summary() const override { return state_.Summary(); }
  std::vector<NamedCandidate> Candidates() const override;
  uint64_t MembersOfNext() const override { return static_cast<uint64_t>(config_.population); }
  Candidate MemberOfNext(uint64_t i) const override { return Member(i); }

 private:
  using Order = std::span<const uint32_t>;  // members, best first
  class Parameters;
  void BeginFrom(const InitialPolicy& policy);
  // Member i of the population that is playing. It is a function of the state, so a generation
  // holds no genomes but its parents', however many members and mutations it has.
  Genome Member(uint64_t i) const;
  bool BornOfParent(uint64_t i) const;
  const Parent& ParentOf(uint64_t i) const { return state_.parents[ParentNumber(i)]; }
  uint64_t ParentNumber(uint64_t i) const;
  Genome Mutate(const Genome& parent, uint64_t individual) const;
  uint64_t NoiseKey(Purpose purpose, uint64_t individual) const;
  double FramesExpected(uint64_t i) const;
  Genome Individual(uint32_t i) const;  // a member, or the old elite
  Parent Played(const EpisodeMeans& played, uint32_t i) const {
    return {Individual(i), played.fitness[i], played.frames[i]};
  }
  GenerationPlan Plan() const;
  bool Validates() const;
  size_t ValidationEpisodes() const;
  std::vector<uint32_t> Candidates(Order order) const;
  void ChooseElite(const GenerationWork& work, Order order, GaState& next) const;
  void KeepBestSingle(const EpisodeMeans& played, Order order, GaState& next) const;
  void SelectParents(const EpisodeMeans& played, Order order, GaState& next) const;
  void SelectDistributed(const EpisodeMeans& played, Order order, GaState& next) const;
  Status Test(const GaState& next, const StopToken& stop, GenerationReport& report);
  nlohmann::json Metrics(const GaState& next) const;
  void Become(GaState next);

  const GaConfig config_;
  AncestorCache cache_;
  GaState state_;  // constant while episodes are played
};

// Parameters of the individuals that handles name, with the help of the kept ancestors.
class DeepGa::Parameters : public ParameterSource {
 public:
  explicit Parameters(DeepGa& ga) : ga_(ga) {}
  void Write(PolicyHandle policy, std::span<float> canonical) const override {
    ga_.cache_.Materialise(ga_.Individual(policy.id), canonical);
  }

 private:
  DeepGa& ga_;
};

// One generation; the numbers are those of doc/deep-ga.md.
Result<GenerationReport> DeepGa::Step(const StopToken& stop) {
  GaState next = state_;
  ++next.generation;
  GenerationReport report;

  // 1 breed: Member(i) says what each is, its parent's parameters are at hand
  for (const Parent& parent : state_.parents) cache_.Keep(parent.genome);

  // 2 every member plays; fitness = undiscounted, unclipped return. Slots that the last episodes
  //   leave idle validate ahead of time
  const SteadyTime start = Now();
  const Parameters individuals(*this);
  GenerationPlayer::Running playing(player_, Plan(), individuals, EpisodesOfNext(), stop);
  RETURN_IF_ERROR(playing.Start());
  RETURN_IF_ERROR(playing.Population());
  const EpisodeMeans& played = playing.work().means();
  const std::vector<uint32_t> order = RankDescending(played.fitness);
  next.Count(playing.work().population());
  report.seconds_population = SecondsSince(start);

  // 3 validation chooses the elite. The parents that it cannot replace are built meanwhile
  const SteadyTime validation = Now();
  for (int64_t i = 0; Validates() && i + 1 < config_.parents; ++i)
    cache_.Keep(Member(order[static_cast<size_t>(i)]));
  RETURN_IF_ERROR(playing.Validation());
  if (Validates()) {
    ChooseElite(playing.work(), order, next);
    report.seconds_validation = SecondsSince(validation);
  } else if (config_.loop == GaLoop::kUberGpu || config_.parents == 0) {
    KeepBestSingle(played, order, next);
  }

  // 4 parents of the next generation
  if (config_.loop == GaLoop::kUberGpu)
    SelectParents(played, order, next);
  else if (config_.parents > 0)
    SelectDistributed(played, order, next);
  next.population_hash =
      PopulationHash([&](size_t i) { return Member(i); }, played.fitness, next.elite->genome);

  // 5 test of the elite on fresh episodes, not counted in frames
  RETURN_IF_ERROR(Test(next, stop, report));
  next.frames_test += report.frames_test;

  // 6 the caller makes the new state durable before it reports the generation
  report.fitness = played.fitness;
  report.frames = next.frames - state_.frames;
  report.frames_reused = report.frames - playing.work().FramesPlayed();
  report.metrics = Metrics(next);
  const size_t mutations = next.elite->genome.mutations.size();
  report.note = std::to_string(mutations) + (mutations == 1 ? " mutation" : " mutations");
  Become(std::move(next));
  return report;
}

// The policy is the only parent of the first generation, and defends its place as the elite; how
// good it is, is not known yet. Its genome serves where it draws the noise that mutations will.
void DeepGa::BeginFrom(const InitialPolicy& policy) {
  const bool is_genome = policy.genome && policy.genome->noise == config_.noise;
  const Parent parent{
      is_genome ? *policy.genome : Genome{config_.noise, InitKind::kPolicy, policy.key, {}},
      std::numeric_limits<double>::quiet_NaN(), 0};
  state_.parents = {parent};
  state_.elite = parent;
}

// ---- 1 breed

Genome DeepGa::Member(uint64_t i) const {
  if (state_.parents.empty())
    return {config_.noise, config_.init, NoiseKey(Purpose::kInitialGenome, i), {}};
  return BornOfParent(i) ? Mutate(ParentOf(i).genome, i) : state_.elite->genome;
}

// Not of the first generation, and not the elite that takes the last place unchanged.
bool DeepGa::BornOfParent(uint64_t i) const {
  const bool last = i + 1 == static_cast<uint64_t>(config_.population);
  const bool elite = last && state_.elite && config_.elite_mode == EliteMode::kMember;
  return !state_.parents.empty() && !elite;
}

uint64_t DeepGa::ParentNumber(uint64_t i) const {
  const CounterRng rng(player_.Key(Purpose::kParentChoice, i));
  return rng.UniformInt(0, state_.parents.size());
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
  return NoiseKeyFor(config_.noise, network_.parameter_count, player_.Key(purpose, individual));
}

// ---- 2 play

GenerationPlan DeepGa::Plan() const {
  GenerationPlan plan;
  plan.episodes = static_cast<size_t>(config_.episodes);
  for (uint32_t i = 0; i < static_cast<uint64_t>(config_.population); ++i)
    for (uint64_t e = 0; e < plan.episodes; ++e)
      plan.population.push_back(player_.PopulationTask(i, e, FramesExpected(i)));
  plan.validation_episodes = Validates() ? static_cast<size_t>(config_.validation_episodes) : 0;
  plan.elite_frames = state_.elite ? state_.elite->frames : 0;
  plan.guess = !player_.shared();
  plan.candidates = [this](std::span<const double> fitness) {
    return Candidates(RankDescending(fitness));
  };
  plan.validation = [this](uint32_t i, uint64_t e) { return player_.ValidationTask(i, e); };
  return plan;
}

// A child plays about as long as its parent did. Unknown: the first generation, random search.
double DeepGa::FramesExpected(uint64_t i) const {
  if (state_.parents.empty()) return 0;
  return BornOfParent(i) ? ParentOf(i).frames : state_.elite->frames;
}

Genome DeepGa::Individual(uint32_t i) const {
  return i < static_cast<uint64_t>(config_.population) ? Member(i) : state_.elite->genome;
}

size_t DeepGa::EpisodesOfNext() const {
  return static_cast<size_t>(config_.population * config_.episodes) + ValidationEpisodes() +
         config_.budget.TestEpisodes(state_.generation + 1);
}

// ---- 3 validate

bool DeepGa::Validates() const {
  return config_.loop == GaLoop::kUberGpu && config_.validation_candidates > 0 &&
         config_.validation_episodes > 0;
}

size_t DeepGa::ValidationEpisodes() const {
  if (!Validates()) return 0;
  // as Candidates chooses them
  const int64_t candidates = std::max<int64_t>(config_.validation_candidates, state_.elite ? 2 : 1);
  return static_cast<size_t>(candidates * config_.validation_episodes);
}

// The top members; the previous elite defends its place in the last one, or, when there is room for
// one only, in a place of its own.
std::vector<uint32_t> DeepGa::Candidates(Order order) const {
  const auto n = static_cast<size_t>(config_.validation_candidates);
  const size_t members = state_.elite && n > 1 ? n - 1 : n;
  std::vector<uint32_t> candidates(order.begin(), order.begin() + static_cast<ptrdiff_t>(members));
  if (state_.elite) candidates.push_back(static_cast<uint32_t>(config_.population));
  return candidates;
}

// The elite is judged on its own validation mean.
void DeepGa::ChooseElite(const GenerationWork& work, Order order, GaState& next) const {
  const std::vector<uint32_t> candidates = Candidates(order);
  EpisodeMeans validated;
  for (const uint32_t i : candidates) {
    const std::vector<EpisodeResult> results = work.ValidationOf(i);
    next.Count(results);
    validated.Add(results);
  }
  const uint32_t best = RankDescending(validated.fitness)[0];
  next.elite = {Individual(candidates[best]), validated.fitness[best], validated.frames[best]};
}

// Without validation the best single fitness so far is the elite.
void DeepGa::KeepBestSingle(const EpisodeMeans& played, Order order, GaState& next) const {
  const uint32_t best = order[0];
  if (next.elite && !IsBetter(played.fitness[best], next.elite->fitness)) return;
  next.elite = Played(played, best);
}

// ---- 4 select

void DeepGa::SelectParents(const EpisodeMeans& played, Order order, GaState& next) const {
  next.parents.clear();
  for (size_t i = 0; i < static_cast<size_t>(config_.parents); ++i)
    next.parents.push_back(Played(played, order[i]));
  const bool kept =
      std::ranges::find(next.parents, next.elite->genome, &Parent::genome) != next.parents.end();
  if (!next.parents.empty() && !kept) next.parents.back() = *next.elite;
}

// parents = the best T of the kept elites and the results (es_distributed/ga.py)
void DeepGa::SelectDistributed(const EpisodeMeans& played, Order order, GaState& next) const {
  std::vector<Parent> pool = std::move(next.parents);
  pool.resize(std::min(pool.size(), static_cast<size_t>(config_.elites)));
  const auto t = static_cast<size_t>(config_.parents);  // at most the population
  for (size_t i = 0; i < t; ++i) pool.push_back(Played(played, order[i]));
  std::ranges::stable_sort(pool, IsBetter, &Parent::fitness);
  pool.resize(t);
  next.elite = pool[0];
  next.parents = std::move(pool);
}

// ---- 5 test, 6 report

Status DeepGa::Test(const GaState& next, const StopToken& stop, GenerationReport& report) {
  const SteadyTime start = Now();
  const size_t episodes = config_.budget.TestEpisodes(next.generation);
  if (episodes == 0) return Status::Ok();
  std::vector<float> elite(network_.parameter_count);
  cache_.Materialise(next.elite->genome, elite);
  ASSIGN_OR_RETURN(const auto results, player_.Test(FixedParameters(elite), episodes, stop));
  for (const auto& r : results)
    report.test_returns.push_back(r.fitness), report.frames_test += r.frames;
  report.seconds_test = SecondsSince(start);
  return Status::Ok();
}

nlohmann::json DeepGa::Metrics(const GaState& next) const {
  std::set<uint64_t> initial, chosen;
  for (const Parent& parent : next.parents) initial.insert(parent.genome.initial);
  for (uint64_t i = 0; i < static_cast<uint64_t>(config_.population); ++i)
    if (BornOfParent(i)) chosen.insert(ParentNumber(i));
  return {{"elite_mutations", next.elite->genome.mutations.size()},
          {"lineages", initial.size()},
          {"parents_distinct", chosen.size()}};
}

std::vector<NamedCandidate> DeepGa::Candidates() const {
  std::vector<NamedCandidate> candidates;
  if (state_.elite) candidates.push_back({"elite", state_.elite->genome, state_.elite->fitness});
  for (const Parent& parent : state_.parents)
    candidates.push_back({"parent:" + std::to_string(candidates.size() - (state_.elite ? 1 : 0)),
                          parent.genome, parent.fitness});
  return candidates;
}

Status DeepGa::RestoreState(std::string_view bytes) {
  ASSIGN_OR_RETURN(GaState state, GaState::Decode(bytes));
  for (const Parent& parent : state.parents)
    RETURN_IF_ERROR(CheckKeys(parent.genome, network_.parameter_count, initial_));
  if (state.elite)
    RETURN_IF_ERROR(CheckKeys(state.elite->genome, network_.parameter_count, initial_));
  Become(std::move(state));
  return Status::Ok();
}

void DeepGa::Become(GaState next) {
  state_ = std::move(next);
  player_.StartAfter(state_.generation, state_.frames);
}

}  // namespace

std::unique_ptr<EvolutionAlgorithm> GaConfig::Make(const EvolutionSetup& setup) const {
  GaConfig settled = *this;
  settled.Settle();
  return std::make_unique<DeepGa>(settled, setup);
}

}  // namespace samara
