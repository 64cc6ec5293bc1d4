#include "evo/algorithms/truncation_ga.h"

#include <limits>
#include <set>

#include "core/clock.h"
#include "evo/algorithms/ranking.h"
#include "evo/genome/noise.h"
#include "evo/genome/population_hash.h"

namespace samara {
// ---- breed

// The policy is the only parent of the first generation, and defends its place as the elite; how
// good it is, is not known yet. Its genome serves where it draws the noise that mutations will.
void TruncationGa::BeginFrom(const InitialPolicy& policy) {
  const bool is_genome = policy.genome && policy.genome->noise == config_.noise;
  const Parent parent{
      is_genome ? *policy.genome : Genome{config_.noise, InitKind::kPolicy, policy.key, {}},
      std::numeric_limits<double>::quiet_NaN(), 0};
  state_.parents = {parent};
  state_.elite = parent;
}

void TruncationGa::KeepParents() {
  for (const Parent& parent : state_.parents) cache_.Keep(parent.genome);
}

Genome TruncationGa::Member(uint64_t i) const {
  if (state_.parents.empty())
    return {config_.noise, config_.init, NoiseKey(Purpose::kInitialGenome, i), {}};
  return BornOfParent(i) ? Mutate(ParentOf(i).genome, i) : state_.elite->genome;
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

Genome TruncationGa::Mutate(const Genome& parent, uint64_t individual) const {
  Genome child{parent.noise, parent.init, parent.initial, {}};
  child.mutations.reserve(parent.mutations.size() + 1);
  child.mutations = parent.mutations;
  child.mutations.push_back(
      {NoiseKey(Purpose::kMutation, individual), MutationPowerAt(config_, state_.frames)});
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

Status TruncationGa::Test(const GaState& next, const StopToken& stop, GenerationReport& report) {
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
  report.frames = next.frames - state_.frames;
  report.frames_reused = report.frames - work.FramesPlayed();
  report.metrics.update(Metrics(next));
  const size_t mutations = next.elite->genome.mutations.size();
  report.note += std::to_string(mutations) + (mutations == 1 ? " mutation" : " mutations");
  Become(std::move(next));
}

std::vector<NamedCandidate> TruncationGa::Candidates() const {
  std::vector<NamedCandidate> candidates;
  if (state_.elite) candidates.push_back({"elite", state_.elite->genome, state_.elite->fitness});
  for (const Parent& parent : state_.parents)
    candidates.push_back({"parent:" + std::to_string(candidates.size() - (state_.elite ? 1 : 0)),
                          parent.genome, parent.fitness});
  return candidates;
}

Status TruncationGa::RestoreState(std::string_view bytes) {
  ASSIGN_OR_RETURN(GaState state, GaState::Decode(bytes));
  for (const Parent& parent : state.parents)
    RETURN_IF_ERROR(CheckKeys(parent.genome, network_.parameter_count, initial_));
  if (state.elite)
    RETURN_IF_ERROR(CheckKeys(state.elite->genome, network_.parameter_count, initial_));
  Become(std::move(state));
  return Status::Ok();
}

void TruncationGa::Become(GaState next) {
  state_ = std::move(next);
  player_.StartAfter(state_.generation, state_.frames);
}

}  // namespace samara
