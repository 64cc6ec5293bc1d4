#include "evo/algorithms/truncation_ga.h"

#include <algorithm>
#include <limits>
#include <set>

#include "core/check.h"
#include "core/clock.h"
#include "evo/algorithms/generation_phases.h"
#include "evo/algorithms/ranking.h"
#include "evo/genome/noise.h"
#include "evo/genome/population_hash.h"

namespace samara {
// ---- breed

// The policy is the only parent of the first generation, and the elite until a member is better:
// its fitness is unknown (NaN), so only validation can keep it. Its genome serves where it draws
// the noise that mutations will.
void TruncationGa::BeginFrom(const InitialPolicy& policy) {
  const bool is_genome = policy.genome && policy.genome->noise == config_.noise;
  const Parent parent{
      is_genome ? *policy.genome : Genome{config_.noise, InitKind::kPolicy, policy.key, {}},
      std::numeric_limits<double>::quiet_NaN(), 0,
      // of an episode that no member plays
      config_.mutation.safe() ? LastEpisode(static_cast<uint64_t>(config_.population)) : 0};
  state_.parents = {parent};
  state_.elite = parent;
}

Status TruncationGa::KeepParents(const StopToken& stop) {
  if (!config_.mutation.safe()) {
    for (const Parent& parent : state_.parents) cache_.Keep(parent.genome);
    return Status::Ok();
  }
  RETURN_IF_ERROR(config_.mutation.Check(player_.records()));
  if (!state_.elite || elite_breeder_.parameters) return Status::Ok();
  // after a resume; the elite may be one of them
  std::vector<Genome> genomes = {state_.elite->genome};
  std::vector<uint64_t> episodes = {state_.elite->episode};
  for (const Parent& parent : state_.parents)
    genomes.push_back(parent.genome), episodes.push_back(parent.episode);
  ASSIGN_OR_RETURN(breeders_, Rebuild(network_, genomes, episodes, true, player_, stop, initial_));
  elite_breeder_ = breeders_[0];
  breeders_.erase(breeders_.begin());
  return Status::Ok();
}

// A child of this generation, or the elite.
void TruncationGa::WriteParameters(uint32_t i, std::span<float> out) {
  const Genome genome = Individual(i);
  if (!config_.mutation.safe() || genome.mutations.empty())
    return cache_.DecodeParameters(genome, out);
  if (i >= static_cast<uint64_t>(config_.population) || !BornOfParent(i)) {
    std::ranges::copy(*elite_breeder_.parameters, out.begin());
    return;
  }
  const Breeder& parent = breeders_[ParentNumber(i)];
  samara::Mutate(network_, genome.noise, genome.mutations.back(), *parent.parameters,
                 parent.experience.get(), out);
}

// A member of the generation that has played, or one that was chosen before.
Result<Breeder> TruncationGa::BreederOf(const Parent& chosen, const GenerationWork& work,
                                        const StopToken& stop) {
  if (state_.elite && chosen.episode == state_.elite->episode) return elite_breeder_;
  for (size_t i = 0; i < breeders_.size(); ++i)
    if (state_.parents[i].episode == chosen.episode) return breeders_[i];
  Breeder breeder;
  for (uint32_t i = 0; i < static_cast<uint64_t>(config_.population); ++i) {
    if (LastEpisode(i) != chosen.episode) continue;
    auto parameters = std::make_shared<std::vector<float>>(network_.parameter_count);
    WriteParameters(i, *parameters);
    breeder = {std::move(parameters), work.ExperienceOf(i)};
    break;
  }
  CHECK(breeder.parameters != nullptr);
  if (breeder.experience) return breeder;
  // it played before this process started
  const uint64_t key = chosen.episode;
  ASSIGN_OR_RETURN(const auto seen,
                   player_.Replay(FixedParameters(*breeder.parameters), {&key, 1}, stop));
  return Breeder(breeder.parameters, seen[0]);
}

Status TruncationGa::TakeParents(const GenerationWork& work, GaState& next, const StopToken& stop) {
  if (!config_.mutation.safe()) return Status::Ok();
  next_breeders_.clear();
  for (const Parent& parent : next.parents) {
    ASSIGN_OR_RETURN(Breeder breeder, BreederOf(parent, work, stop));
    next_breeders_.push_back(std::move(breeder));
  }
  ASSIGN_OR_RETURN(next_elite_breeder_, BreederOf(*next.elite, work, stop));
  next.elite_parameters.clear();
  if (!next.elite->genome.plain()) next.elite_parameters = *next_elite_breeder_.parameters;
  return Status::Ok();
}

uint64_t TruncationGa::LastEpisode(uint64_t member) const {
  return player_.Key(Purpose::kEpisodePopulation, member,
                     static_cast<uint64_t>(config_.episodes) - 1);
}

uint64_t TruncationGa::EpisodeOf(uint32_t individual) const {
  if (!config_.mutation.safe()) return 0;
  const bool old_elite = individual == static_cast<uint64_t>(config_.population);
  return old_elite ? state_.elite->episode : LastEpisode(individual);
}

Genome TruncationGa::Member(uint64_t i) const {
  if (state_.parents.empty())
    return {config_.noise, config_.init, NoiseKey(Purpose::kInitialGenome, i), {}};
  return BornOfParent(i) ? Mutate(ParentOf(i), i) : state_.elite->genome;
}

// Not of the first generation, and not the elite that takes the last place unchanged.
bool TruncationGa::BornOfParent(uint64_t i) const {
  const bool last = i + 1 == static_cast<uint64_t>(config_.population);
  const bool elite = last && state_.elite && config_.elite_mode == EliteMode::kMember;
  return !state_.parents.empty() && !elite;
}

uint64_t TruncationGa::ParentNumber(uint64_t i) const {
  const CounterRng rng(player_.Key(Purpose::kParentChoice, i));
  return rng.UniformInt(0, state_.parents.size());
}

Genome TruncationGa::Mutate(const Parent& parent, uint64_t individual) const {
  const Genome& genome = parent.genome;
  Genome child{genome.noise, genome.init, genome.initial, {}};
  child.mutations.reserve(genome.mutations.size() + 1);
  child.mutations = genome.mutations;
  child.mutations.push_back(
      {NoiseKey(Purpose::kMutation, individual), MutationPowerAt(config_, state_.frames)});
  if (config_.mutation.safe())
    config_.mutation.Describe(parent.episode, breeders_[ParentNumber(individual)].experience_hash,
                              child.mutations.back());
  return child;
}

uint64_t TruncationGa::NoiseKey(Purpose purpose, uint64_t individual) const {
  return NoiseKeyFor(config_.noise, network_.parameter_count, player_.Key(purpose, individual));
}

// ---- play

GenerationPlan TruncationGa::Plan() const {
  GenerationPlan plan;
  plan.episodes = static_cast<size_t>(config_.episodes);
  for (uint32_t i = 0; i < static_cast<uint64_t>(config_.population); ++i)
    for (uint64_t e = 0; e < plan.episodes; ++e)
      plan.population.push_back(player_.PopulationTask(i, e, FramesExpected(i)));
  for (size_t last = plan.episodes - 1; last < plan.population.size(); last += plan.episodes)
    plan.population[last].experience = config_.mutation.safe();
  return plan;
}

// A child plays about as long as its parent did. Unknown: the first generation, random search.
double TruncationGa::FramesExpected(uint64_t i) const {
  if (state_.parents.empty()) return 0;
  return BornOfParent(i) ? ParentOf(i).frames : state_.elite->frames;
}

Genome TruncationGa::Individual(uint32_t i) const {
  return i < static_cast<uint64_t>(config_.population) ? Member(i) : state_.elite->genome;
}

size_t TruncationGa::EpisodesOfNext() const {
  return static_cast<size_t>(config_.population * config_.episodes) + ValidationEpisodes() +
         config_.budget.TestEpisodes(state_.generation + 1);
}

// ---- select

void TruncationGa::KeepBestSingle(const EpisodeMeans& played, Order order, GaState& next) const {
  const uint32_t best = order[0];
  if (next.elite && !IsBetter(played.fitness[best], next.elite->fitness)) return;
  next.elite = Played(played, best);
}

// ---- test and report

Status TruncationGa::Test(GaState& next, const StopToken& stop, GenerationReport& report) {
  const size_t episodes = config_.budget.TestEpisodes(next.generation);
  if (episodes == 0) return Status::Ok();
  std::vector<float> elite = next.elite_parameters;
  if (elite.empty()) {
    elite.resize(network_.parameter_count);
    cache_.DecodeParameters(next.elite->genome, elite);
  }
  return TestPolicy(player_, elite, episodes, stop, next, report);
}

nlohmann::json TruncationGa::Metrics(const GaState& next) const {
  std::set<uint64_t> initial, chosen;
  for (const Parent& parent : next.parents) initial.insert(parent.genome.initial);
  for (uint64_t i = 0; i < static_cast<uint64_t>(config_.population); ++i)
    if (BornOfParent(i)) chosen.insert(ParentNumber(i));
  return {{"elite_mutations", next.elite->genome.mutations.size()},
          {"lineages", initial.size()},
          {"parents_distinct", chosen.size()}};
}

void TruncationGa::Finish(const GenerationWork& work, GaState next, GenerationReport& report) {
  report.fitness = work.means().fitness;
  report.AddPopulation(work.population(), static_cast<size_t>(config_.episodes));
  next.population_hash =
      PopulationHash([&](size_t i) { return Member(i); }, report.fitness, next.elite->genome);
  SetFrames(player_, next.frames - state_.frames, report);
  report.metrics.update(Metrics(next));
  const size_t mutations = next.elite->genome.mutations.size();
  report.note += std::to_string(mutations) + (mutations == 1 ? " mutation" : " mutations");
  Become(std::move(next));
}

std::vector<NamedCandidate> TruncationGa::Candidates() const {
  std::vector<NamedCandidate> candidates;
  if (state_.elite) candidates.push_back({"elite", summary().best, state_.elite->fitness});
  for (size_t i = 0; i < state_.parents.size(); ++i)
    // the seeds of a safe mutation alone do not rebuild it
    if (const Parent& parent = state_.parents[i]; parent.genome.plain())
      candidates.push_back({"parent:" + std::to_string(i), parent.genome, parent.fitness});
  return candidates;
}

std::vector<ScoredGenome> TruncationGa::Genomes() const {
  std::vector<ScoredGenome> genomes;
  if (state_.elite) genomes.push_back({state_.elite->genome, state_.elite->fitness});
  for (const Parent& parent : state_.parents) genomes.push_back({parent.genome, parent.fitness});
  return genomes;
}

Status TruncationGa::RestoreState(std::string_view bytes) {
  ASSIGN_OR_RETURN(GaState state, GaState::Decode(bytes));
  return Restore(std::move(state));
}

Status TruncationGa::Restore(GaState state) {
  for (const Parent& parent : state.parents)
    RETURN_IF_ERROR(CheckKeys(parent.genome, network_.parameter_count, initial_));
  if (state.elite)
    RETURN_IF_ERROR(CheckKeys(state.elite->genome, network_.parameter_count, initial_));
  next_breeders_.clear(), next_elite_breeder_ = {};
  Become(std::move(state));
  return Status::Ok();
}

void TruncationGa::Become(GaState next) {
  state_ = std::move(next);
  breeders_ = std::move(next_breeders_), elite_breeder_ = std::move(next_elite_breeder_);
  next_breeders_.clear(), next_elite_breeder_ = {};
  player_.StartAfter(state_.generation, state_.frames);
}

}  // namespace samara
