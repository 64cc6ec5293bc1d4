#include "evo/algorithms/ga.h"

#include <algorithm>

#include "core/clock.h"
#include "evo/algorithms/ranking.h"
#include "evo/algorithms/truncation_ga.h"

namespace samara {
namespace {

class DeepGa : public TruncationGa {
 public:
  DeepGa(const GaConfig& config, const EvolutionSetup& setup) : TruncationGa(config, setup) {}
  Result<GenerationReport> Step(const StopToken& stop) override;

 private:
  GenerationPlan PlanWithValidation() const;
  bool Validates() const;
  size_t ValidationEpisodes() const override;
  std::vector<uint32_t> EliteCandidates(Order order) const;
  void ChooseElite(const GenerationWork& work, Order order, GaState& next) const;
  void SelectParents(const EpisodeMeans& played, Order order, GaState& next) const;
  void SelectDistributed(const EpisodeMeans& played, Order order, GaState& next) const;
};

// One generation; the numbers are those of doc/deep-ga.md.
Result<GenerationReport> DeepGa::Step(const StopToken& stop) {
  GaState next = state_;
  ++next.generation;
  GenerationReport report;

  // 1 breed: Member(i) says what each is, its parent's parameters are at hand
  RETURN_IF_ERROR(KeepParents(stop));

  // 2 every member plays; fitness = undiscounted, unclipped return. Slots that the last episodes
  //   leave idle validate already
  const SteadyTime start = Now();
  const Parameters individuals(*this);
  GenerationPlayer::Running playing(player_, PlanWithValidation(), individuals, EpisodesOfNext(),
                                    stop);
  RETURN_IF_ERROR(playing.Start());
  RETURN_IF_ERROR(playing.Population());
  const EpisodeMeans& played = playing.work().means();
  const std::vector<uint32_t> order = RankDescending(played.fitness);
  next.Count(playing.work().population());
  report.seconds_population = SecondsSince(start);

  // 3 validation chooses the elite. The parents that it cannot replace are built meanwhile
  const SteadyTime validation = Now();
  const bool plain = !config_.mutation.safe();
  for (int64_t i = 0; plain && Validates() && i + 1 < config_.parents; ++i)
    cache_.Keep(Member(order[static_cast<size_t>(i)]));
  RETURN_IF_ERROR(playing.Validation());
  if (Validates()) {
    ChooseElite(playing.work(), order, next);
    report.seconds_validation = SecondsSince(validation);
    report.validated = static_cast<uint64_t>(config_.validation_episodes);
  } else if (config_.loop == GaLoop::kUberGpu || config_.parents == 0) {
    KeepBestSingle(played, order, next);
  }

  // 4 parents of the next generation
  if (config_.loop == GaLoop::kUberGpu)
    SelectParents(played, order, next);
  else if (config_.parents > 0)
    SelectDistributed(played, order, next);

  // 5 test of the elite on fresh episodes, not counted in frames
  RETURN_IF_ERROR(TakeParents(playing.work(), next, stop));
  RETURN_IF_ERROR(Test(next, stop, report));

  // 6 the caller makes the new state durable before it reports the generation
  Finish(playing.work(), std::move(next), report);
  return report;
}

// ---- 3 validate

GenerationPlan DeepGa::PlanWithValidation() const {
  GenerationPlan plan = Plan();
  plan.validation_episodes = Validates() ? static_cast<size_t>(config_.validation_episodes) : 0;
  plan.elite_frames = state_.elite ? state_.elite->frames : 0;
  plan.speculate = !player_.shared();
  plan.candidates = [this](std::span<const double> fitness) {
    return EliteCandidates(RankDescending(fitness));
  };
  plan.validation = [this](uint32_t i, uint64_t e) { return player_.ValidationTask(i, e); };
  return plan;
}

bool DeepGa::Validates() const {
  return config_.loop == GaLoop::kUberGpu && config_.validation_candidates > 0 &&
         config_.validation_episodes > 0;
}

size_t DeepGa::ValidationEpisodes() const {
  if (!Validates()) return 0;
  // as EliteCandidates chooses them
  const int64_t candidates = std::max<int64_t>(config_.validation_candidates, state_.elite ? 2 : 1);
  return static_cast<size_t>(candidates * config_.validation_episodes);
}

// The top members; the previous elite defends its place in the last one, or, when there is room for
// one only, in a place of its own.
std::vector<uint32_t> DeepGa::EliteCandidates(Order order) const {
  const auto n = static_cast<size_t>(config_.validation_candidates);
  const size_t members = state_.elite && n > 1 ? n - 1 : n;
  std::vector<uint32_t> candidates(order.begin(), order.begin() + static_cast<ptrdiff_t>(members));
  if (state_.elite) candidates.push_back(static_cast<uint32_t>(config_.population));
  return candidates;
}

// The elite is judged on its own validation mean.
void DeepGa::ChooseElite(const GenerationWork& work, Order order, GaState& next) const {
  const std::vector<uint32_t> candidates = EliteCandidates(order);
  EpisodeMeans validated;
  for (const uint32_t i : candidates) {
    const std::vector<EpisodeResult> results = work.ValidationOf(i);
    next.Count(results);
    validated.Add(results);
  }
  const uint32_t best = RankDescending(validated.fitness)[0];
  next.elite = {Individual(candidates[best]), validated.fitness[best], validated.frames[best],
                EpisodeOf(candidates[best])};
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

}  // namespace

std::unique_ptr<EvolutionAlgorithm> GaConfig::Make(const EvolutionSetup& setup) const {
  GaConfig settled = *this;
  settled.Settle();
  return std::make_unique<DeepGa>(settled, setup);
}

}  // namespace samara
