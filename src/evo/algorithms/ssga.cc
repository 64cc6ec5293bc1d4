#include "evo/algorithms/ssga.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/bytes.h"
#include "core/clock.h"
#include "core/mutex.h"
#include "evo/algorithms/generation_phases.h"
#include "evo/algorithms/ranking.h"
#include "evo/genome/decode.h"
#include "evo/genome/genome_set.h"
#include "evo/genome/noise.h"
#include "evo/genome/population_hash.h"

namespace samara {
namespace {

// An individual of the population. Constant after its result, except for its parameters, which are
// computed at their first use.
class Individual {
 public:
  explicit Individual(Genome own) : genome(std::move(own)) {}

  // Parameters from the parent's; they stay, and the parent is let go. Thread safe.
  std::shared_ptr<const std::vector<float>> Parameters(const NetworkDescription& network) {
    const MutexLock lock(mu_);
    if (parameters_) return parameters_;
    auto made = std::make_shared<std::vector<float>>(network.parameter_count);
    if (parent_ == nullptr)
      InitialParameters(genome, network, *made);
    else
      Mutate(network, genome.noise, genome.mutations.back(), *parent_->Parameters(network),
             parent_->experience.get(), *made);
    parameters_ = std::move(made);
    parent_.reset();
    return parameters_;
  }
  void SetParent(std::shared_ptr<Individual> parent) {
    const MutexLock lock(mu_);
    parent_ = std::move(parent);
  }
  void SetParameters(std::shared_ptr<const std::vector<float>> parameters) {
    const MutexLock lock(mu_);
    parameters_ = std::move(parameters);
  }

  const Genome genome;
  double fitness = 0;
  uint64_t episode = 0;
  SharedExperience experience;  // null with plain mutation
  uint64_t experience_hash = 0;

 private:
  Mutex mu_;
  std::shared_ptr<Individual> parent_ GUARDED_BY(mu_);  // null: of the first generation
  std::shared_ptr<const std::vector<float>> parameters_ GUARDED_BY(mu_);
};
using SharedIndividual = std::shared_ptr<Individual>;
using Population = std::vector<SharedIndividual>;

class Ssga : public EvolutionAlgorithm {
 public:
  Ssga(const SsgaConfig& config, const EvolutionSetup& setup)
      : EvolutionAlgorithm(setup), config_(config) {}
  Result<GenerationReport> Step(const StopToken& stop) override;
  size_t EpisodesOfNext() const override;
  std::string EncodeState() const override { return state_.Encode(); }
  Status RestoreState(std::string_view bytes) override;
  EvolutionSummary summary() const override { return state_.Summary(); }
  std::vector<ScoredGenome> Genomes() const override;

 private:
  class Births;
  Status WakeUp(const StopToken& stop);
  size_t BirthsOfNext() const;
  Genome First(uint64_t i) const;
  Genome ChildOf(const Individual& parent, uint64_t i) const;
  uint64_t NoiseKey(Purpose purpose, uint64_t i) const;
  uint64_t Winner(const Population& population, uint64_t key, bool worst) const;
  void Replace(Population& population, const SharedIndividual& born, uint64_t i) const;
  Status Test(SsgaState& next, const StopToken& stop, GenerationReport& report);
  SsgaState StateOf(const EvolutionCounters& counters, const Population& population,
                    Individual& best) const;

  const SsgaConfig config_;
  SsgaState state_;
  Population population_;  // as in state_; empty before the first step, and after RestoreState
  SharedIndividual best_;
};

class Ssga::Births : public ParameterSource {
 public:
  Births(const NetworkDescription& network, size_t count) : network_(network), born_(count) {}
  size_t size() const { return born_.size(); }
  // By number, from when it is bred.
  SharedIndividual& operator[](size_t i) { return born_[i]; }
  void Write(PolicyHandle policy, std::span<float> canonical) const override {
    std::ranges::copy(*born_[policy.id]->Parameters(network_), canonical.begin());
  }

 private:
  const NetworkDescription& network_;
  Population born_;
};

// As many births as lie between two lines of metrics; the numbers are those of
// doc/safe-mutations.md.
Result<GenerationReport> Ssga::Step(const StopToken& stop) {
  RETURN_IF_ERROR(WakeUp(stop));
  const SteadyTime start = Now();
  const bool first = population_.empty();
  Population population = population_;
  SharedIndividual best = best_;
  Births births(network_, BirthsOfNext());
  OrderedWork::Plan plan{.tasks = births.size(),
                         .window = first ? births.size() : static_cast<size_t>(config_.window),
                         .make = {},
                         .merge = {}};

  // 1 birth i: a parent by tournament from the population as births up to i - window have left it,
  //   and one mutation; the first population is drawn
  plan.make = [&](uint32_t i) {
    SharedIndividual parent;
    if (!first)
      parent = population[Winner(population, player_.Key(Purpose::kParentChoice, i), false)];
    births[i] = std::make_shared<Individual>(first ? First(i) : ChildOf(*parent, i));
    if (parent) births[i]->SetParent(std::move(parent));
    Task task = player_.PopulationTask(i, 0);
    task.experience = config_.mutation.safe();
    births[i]->episode = task.episode.seed;
    return task;
  };

  // 2 its episode is its fitness; what it saw is kept for its own children
  // 3 it takes the place of a victim, by a tournament of its own
  plan.merge = [&](uint32_t i, const EpisodeResult& result, SharedExperience experience) {
    Individual& born = *births[i];
    born.fitness = result.fitness;
    if (experience) born.experience_hash = experience->Hash();
    born.experience = std::move(experience);
    if (first)
      population.push_back(births[i]);
    else
      Replace(population, births[i], i);
    if (!best || IsBetter(born.fitness, best->fitness)) best = births[i];
  };
  ASSIGN_OR_RETURN(const auto results,
                   player_.PlayOrdered(plan, births, config_.mutation.safe(), stop));
  // what another rank played
  for (const SharedIndividual& member : population) (void)member->Parameters(network_);

  // 4 the caller makes the new state durable before it reports the births
  EvolutionCounters counters = state_;
  ++counters.generation;
  counters.Count(results);
  SsgaState next = StateOf(counters, population, *best);
  GenerationReport report;
  for (const EpisodeResult& r : results) report.fitness.push_back(r.fitness);
  report.AddPopulation(results, 1);
  report.seconds_population = SecondsSince(start);
  RETURN_IF_ERROR(Test(next, stop, report));
  SetFrames(player_, next.frames - state_.frames, report);
  double sum = 0;
  size_t mutations = 0;
  for (const SharedIndividual& member : population)
    sum += member->fitness, mutations += member->genome.mutations.size();
  const auto size = static_cast<double>(population.size());
  report.metrics = {{"population_mean", sum / size},
                    {"population_mutations", static_cast<double>(mutations) / size},
                    {"elite_mutations", best->genome.mutations.size()}};
  report.note = fmt::format("{} evaluations, population mean {:.4g}", next.episodes, sum / size);
  state_ = std::move(next), population_ = std::move(population), best_ = std::move(best);
  player_.StartAfter(state_.generation, state_.frames);
  return report;
}

// After a resume the population has genomes and fitness only.
Status Ssga::WakeUp(const StopToken& stop) {
  RETURN_IF_ERROR(config_.mutation.Check(player_.records()));
  if (state_.population.empty() || !population_.empty()) return Status::Ok();
  std::vector<Genome> genomes;
  std::vector<uint64_t> episodes;
  for (const SsgaMember& member : state_.population)
    genomes.push_back(member.genome), episodes.push_back(member.episode);
  ASSIGN_OR_RETURN(const auto breeders,
                   Rebuild(network_, genomes, episodes, config_.mutation.safe(), player_, stop));
  for (size_t i = 0; i < genomes.size(); ++i) {
    auto member = std::make_shared<Individual>(genomes[i]);
    member->fitness = state_.population[i].fitness;
    member->episode = episodes[i];
    member->experience = breeders[i].experience;
    member->experience_hash = breeders[i].experience_hash;
    member->SetParameters(breeders[i].parameters);
    if (state_.population[i] == *state_.best) best_ = member;
    population_.push_back(std::move(member));
  }
  if (best_) return Status::Ok();
  best_ = std::make_shared<Individual>(state_.best->genome);  // replaced since: it has no children
  best_->fitness = state_.best->fitness;
  best_->episode = state_.best->episode;
  ASSIGN_OR_RETURN(std::vector<float> parameters, ParametersOf(state_.Summary().best, network_));
  best_->SetParameters(std::make_shared<std::vector<float>>(std::move(parameters)));
  return Status::Ok();
}

// ---- 1 breed

Genome Ssga::First(uint64_t i) const {
  return {config_.noise, config_.init, NoiseKey(Purpose::kInitialGenome, i), {}};
}

Genome Ssga::ChildOf(const Individual& parent, uint64_t i) const {
  Genome child = parent.genome;
  Mutation& mutation = child.mutations.emplace_back();
  mutation.key = NoiseKey(Purpose::kMutation, i);
  mutation.power = static_cast<float>(config_.mutation_power);
  if (config_.mutation.safe())
    config_.mutation.Describe(parent.episode, parent.experience_hash, mutation);
  return child;
}

uint64_t Ssga::NoiseKey(Purpose purpose, uint64_t i) const {
  return NoiseKeyFor(config_.noise, network_.parameter_count, player_.Key(purpose, i));
}

// The best, or the worst, of `tournament` members drawn with replacement; ties to the first drawn.
uint64_t Ssga::Winner(const Population& population, uint64_t key, bool worst) const {
  const CounterRng rng(key);
  uint64_t winner = rng.UniformInt(0, population.size());
  for (uint64_t draw = 1; draw < static_cast<uint64_t>(config_.tournament); ++draw) {
    const uint64_t other = rng.UniformInt(draw, population.size());
    const double a = population[other]->fitness, b = population[winner]->fitness;
    if (worst ? IsBetter(b, a) : IsBetter(a, b)) winner = other;
  }
  return winner;
}

// ---- 3 replace

// The best of the population is not replaced by a worse one: with one member, the hill climber.
void Ssga::Replace(Population& population, const SharedIndividual& born, uint64_t i) const {
  SharedIndividual& victim =
      population[Winner(population, player_.Key(Purpose::kParentChoice, i, 1), true)];
  if (IsBetter(victim->fitness, born->fitness)) {
    const bool best = std::ranges::none_of(population, [&](const SharedIndividual& member) {
      return IsBetter(member->fitness, victim->fitness);
    });
    if (best) return;
  }
  victim = born;
}

// ---- 4 state and report

Status Ssga::Test(SsgaState& next, const StopToken& stop, GenerationReport& report) {
  const size_t episodes = config_.budget.TestEpisodes(next.generation);
  if (episodes == 0) return Status::Ok();
  ASSIGN_OR_RETURN(const std::vector<float> parameters,
                   ParametersOf(next.Summary().best, network_));
  return TestPolicy(player_, parameters, episodes, stop, next, report);
}

SsgaState Ssga::StateOf(const EvolutionCounters& counters, const Population& population,
                        Individual& best) const {
  const auto member = [](const Individual& from) {
    return SsgaMember{from.genome, from.fitness, from.episode};
  };
  SsgaState state{counters, {}, member(best), {}, {}};
  std::vector<Genome> genomes;
  std::vector<double> fitness;
  for (const SharedIndividual& individual : population) {
    state.population.push_back(member(*individual));
    genomes.push_back(individual->genome), fitness.push_back(individual->fitness);
  }
  if (!best.genome.plain()) state.best_parameters = *best.Parameters(network_);
  state.population_hash = PopulationHash(genomes, fitness, best.genome);
  return state;
}

// Whole generations, whatever the budget: a run that is extended has the bits of a longer one.
size_t Ssga::BirthsOfNext() const {
  return static_cast<size_t>(state_.generation == 0 ? config_.population : config_.births);
}

size_t Ssga::EpisodesOfNext() const {
  return BirthsOfNext() + config_.budget.TestEpisodes(state_.generation + 1);
}

std::vector<ScoredGenome> Ssga::Genomes() const {
  std::vector<ScoredGenome> genomes;
  if (state_.best) genomes.push_back({state_.best->genome, state_.best->fitness});
  for (const SsgaMember& member : state_.population)
    genomes.push_back({member.genome, member.fitness});
  return genomes;
}

Status Ssga::RestoreState(std::string_view bytes) {
  ASSIGN_OR_RETURN(SsgaState state, SsgaState::Decode(bytes));
  for (const auto& member : state.population)
    RETURN_IF_ERROR(CheckKeys(member.genome, network_.parameter_count));
  if (state.best) RETURN_IF_ERROR(CheckKeys(state.best->genome, network_.parameter_count));
  state_ = std::move(state);
  population_.clear();
  best_.reset();
  player_.StartAfter(state_.generation, state_.frames);
  return Status::Ok();
}

}  // namespace

// ---- state

EvolutionSummary SsgaState::Summary() const {
  EvolutionSummary summary{EvolutionCounters(*this), population_hash, {}, 0};
  if (!best) return summary;
  summary.best_mean = best->fitness;
  if (best_parameters.empty())
    summary.best = best->genome;
  else
    summary.best = best_parameters;
  return summary;
}

std::string SsgaState::Encode() const {
  ByteWriter out;
  out.Put(kVersion);
  PutCounters(out, *this);
  std::vector<SsgaMember> members = population;
  if (best) members.push_back(*best);
  std::vector<Genome> genomes;
  genomes.reserve(members.size());
  for (const SsgaMember& member : members) genomes.push_back(member.genome);
  out.PutBytes(EncodeGenomes(genomes)).Put(uint8_t{best.has_value()});
  for (const SsgaMember& member : members) out.Put(member.fitness).Put(member.episode);
  out.PutVector(best_parameters).Put(population_hash);
  return out.Take();
}

Result<SsgaState> SsgaState::Decode(std::string_view bytes) {
  const Status damaged(Code::kBadData, "the recorded state of the evolution is damaged");
  ByteReader in(bytes);
  SsgaState s;
  if (in.Get<uint32_t>() != kVersion) return damaged;
  static_cast<EvolutionCounters&>(s) = GetCounters(in);
  const std::string_view genomes = in.GetBytes();
  const auto has_best = in.Get<uint8_t>();
  if (!in.ok() || has_best > 1) return damaged;
  ASSIGN_OR_RETURN(std::vector<Genome> decoded, DecodeGenomes(genomes));
  if (decoded.size() < has_best) return damaged;
  for (Genome& genome : decoded) {
    SsgaMember& member = s.population.emplace_back();
    member.genome = std::move(genome);
    member.fitness = in.Get<double>();
    member.episode = in.Get<uint64_t>();
  }
  if (has_best == 1) s.best = std::move(s.population.back()), s.population.pop_back();
  if (s.best.has_value() == s.population.empty()) return damaged;
  if (!in.GetVector(s.best_parameters)) return damaged;
  s.population_hash = in.Get<Digest>();
  if (!in.AtEnd() || (s.best && s.best->genome.plain() != s.best_parameters.empty()))
    return damaged;
  return s;
}

Result<EvolutionSummary> DescribeSsga(std::string_view state) {
  ASSIGN_OR_RETURN(const SsgaState s, SsgaState::Decode(state));
  return s.Summary();
}

// ---- configuration

std::unique_ptr<EvolutionConfig> MakeSsgaConfig() { return std::make_unique<SsgaConfig>(); }

void SsgaConfig::Bind(ConfigTable& table) {
  table.Add("ga.population", &population, {1, 1'000'000}, "genomes", "number of members");
  table.Add("ga.tournament", &tournament, {1, 10'000}, "genomes",
            "members drawn for a parent, and again for a victim");
  table.Add("ga.births", &births, {1, 10'000'000}, "births",
            "length of a generation: births between two lines of metrics");
  table.Add("ga.window", &window, {1, 1'000'000}, "births",
            "birth i is bred once births up to i - window have joined the population; more keeps "
            "more threads and ranks busy");
  table.Add(
      "ga.evaluations", &budget.evaluations, {0, 1e12}, "episodes",
      "budget, the first population included, rounded up to a whole generation; 0 = unlimited",
      OnResume::kMayGrow);
  table.Add("ga.mutation_power", &mutation_power, {0, kMutationPowerMax}, "",
            "standard deviation of a mutation; of sm_r the divergence of the outputs");
  mutation.Bind(table, "ga");
  table.Add("ga.noise", &noise, kNoiseNames, "kind of noise; part of a genome's identity");
  table.Add("ga.init", &init, kInitNames,
            "initial weights; fan_in is the GPU program's, unit_norm the distributed one's");
  table.Add("ga.cache_megabytes", &cache_megabytes, {1, 1e7}, "MB",
            "memory for parameters of the population", OnResume::kMayChange);
  BindTest(table, "ga", budget);
  BindBudget(table, "ga", budget);
}

Status SsgaConfig::Check(const NetworkDescription& network) const {
  RETURN_IF_ERROR(CheckNoise(noise, network.parameter_count));
  RETURN_IF_ERROR(mutation.Check(network));
  const double megabytes = static_cast<double>(population + window) *
                           static_cast<double>(network.parameter_count) * 4 / (1 << 20);
  if (megabytes <= static_cast<double>(cache_megabytes)) return Status::Ok();
  return {Code::kConfig,
          fmt::format("ga.population={}: the parameters of so many networks of {} take {:.0f} MB; "
                      "expected a smaller population, or ga.cache_megabytes of at least that",
                      population, network.parameter_count, megabytes)};
}

std::unique_ptr<EvolutionAlgorithm> SsgaConfig::Make(const EvolutionSetup& setup) const {
  return std::make_unique<Ssga>(*this, setup);
}

}  // namespace samara
