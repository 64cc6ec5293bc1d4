#include "evo/evaluate/generation_scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"

namespace samara {

void EpisodeMeans::Add(std::span<const EpisodeResult> episodes) {
  double sum_fitness = 0, sum_frames = 0;
  for (const auto& r : episodes)
    sum_fitness += r.fitness, sum_frames += static_cast<double>(r.frames);
  fitness.push_back(sum_fitness / static_cast<double>(episodes.size()));
  frames.push_back(sum_frames / static_cast<double>(episodes.size()));
}

GenerationWork::GenerationWork(GenerationPlan plan, StopToken stop,
                               const ResultsByIndex& population, const ResultsByIndex& validation)
    : plan_(std::move(plan)),
      stop_(std::move(stop)),
      members_(static_cast<uint32_t>(plan_.population.size() / plan_.episodes)),
      order_(LongestFirst(plan_.population)),
      known_validation_(validation),
      dropped_(members_ + 1),
      population_(plan_.population.size()),
      experiences_(members_),
      left_(members_, plan_.episodes),
      means_{std::vector<double>(members_, std::numeric_limits<double>::quiet_NaN()),
             std::vector<double>(members_)},
      is_candidate_(members_ + 1),
      validation_(validation) {
  CHECK_EQ(plan_.population.size(), members_ * plan_.episodes);
  for (const auto& [index, result] : population) {
    if (index < population_.size()) PostPopulation(index, result);
  }
  known_population_frames_ = population_frames_;
}

std::optional<uint32_t> GenerationWork::Claim() {
  if (stop_ && stop_()) return std::nullopt;
  const MutexLock lock(mu_);
  while (next_ < order_.size() && population_[order_[next_]].done) ++next_;
  if (next_ < order_.size()) return order_[next_++];
  if (!all_claimed_) {
    all_claimed_ = true;
    ChooseCandidates();
  }
  if (queue_.empty()) return std::nullopt;
  const uint32_t index = queue_.front();
  queue_.pop_front();
  claimed_.insert(index);
  return static_cast<uint32_t>(population_.size()) + index;
}

Task GenerationWork::TaskOf(uint32_t index) const {
  const auto population = static_cast<uint32_t>(plan_.population.size());
  if (index < population) return plan_.population[index];
  const auto episodes = static_cast<uint32_t>(plan_.validation_episodes);
  return plan_.validation((index - population) / episodes, (index - population) % episodes);
}

EpisodeResult GenerationWork::Reduced(EpisodeResult result) const {
  if (plan_.reduce) plan_.reduce(result);
  return result;
}

void GenerationWork::Post(uint32_t index, const EpisodeResult& played) {
  EpisodeResult result = Reduced(played);
  result.done = true;
  const auto population = static_cast<uint32_t>(plan_.population.size());
  const bool of_population = index < population;
  if (!of_population) index -= population;
  {
    const MutexLock lock(mu_);
    if (!(of_population ? PostPopulation(index, result) : PostValidation(index, result))) return;
  }
  // outside mu_: the sink may write to disk
  const MutexLock lock(sink_mu_);
  if (sink_) sink_(of_population ? Phase::kPopulation : Phase::kValidation, index, result);
}

void GenerationWork::PostExperience(uint32_t index, SharedExperience experience) {
  const MutexLock lock(mu_);
  if (index < population_.size()) experiences_[index / plan_.episodes] = std::move(experience);
}

bool GenerationWork::PostPopulation(uint32_t index, const EpisodeResult& result) {
  if (population_[index].done) return false;
  population_[index] = result;
  population_[index].done = true;
  ++population_done_;
  population_frames_ += result.frames;
  const size_t member = index / plan_.episodes;
  if (--left_[member] == 0) {
    EpisodeMeans mean;
    mean.Add(std::span(population_).subspan(member * plan_.episodes, plan_.episodes));
    means_.fitness[member] = mean.fitness[0], means_.frames[member] = mean.frames[0];
    best_ = std::fmax(best_, mean.fitness[0]);
  }
  // without speculation only the old elite is a candidate before, which Claim has chosen
  if (PopulationComplete() || (all_claimed_ && plan_.speculate)) ChooseCandidates();
  if (PopulationComplete()) changed_.NotifyAll();
  return true;
}

bool GenerationWork::PostValidation(uint32_t index, const EpisodeResult& result) {
  const auto [posted, is_new] = validation_.try_emplace(index, result);
  if (!is_new) return false;
  posted->second.done = true;
  Count(index, posted->second);
  SeeWhetherComplete();
  return true;
}

// The results so far choose the candidates; the rest of their episodes is queued.
void GenerationWork::ChooseCandidates() {
  std::vector<uint32_t> chosen;
  if (plan_.validation_episodes > 0) chosen = plan_.candidates(means_.fitness);
  const bool all = plan_.speculate || PopulationComplete();
  std::erase_if(chosen,
                [&](uint32_t i) REQUIRES(mu_) { return i < members_ && (left_[i] > 0 || !all); });
  for (const uint32_t i : candidates_) is_candidate_[i] = false;
  for (const uint32_t i : chosen) is_candidate_[i] = true;
  for (const uint32_t i : candidates_)
    dropped_[i].store(!is_candidate_[i], std::memory_order_relaxed);
  candidates_ = std::move(chosen);

  // what is certain first, then the longest
  const auto rank = [this](uint32_t i) REQUIRES(mu_) {
    const bool certain = i == members_ || PopulationComplete();
    return std::pair(certain, i == members_ ? plan_.elite_frames : means_.frames[i]);
  };
  std::vector<uint32_t> order = candidates_;
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) REQUIRES(mu_) { return rank(a) > rank(b); });
  queue_.clear();
  validation_done_ = 0, validation_frames_ = 0;
  for (const uint32_t i : order) {
    for (size_t e = 0; e < plan_.validation_episodes; ++e) {
      const auto index = static_cast<uint32_t>(i * plan_.validation_episodes + e);
      const auto known = validation_.find(index);
      if (known != validation_.end())
        Count(index, known->second);
      else if (!claimed_.contains(index))
        queue_.push_back(index);
    }
  }
  SeeWhetherComplete();
}

// A result that counts, as long as its individual is a candidate.
void GenerationWork::Count(uint32_t index, const EpisodeResult& result) {
  if (!is_candidate_[index / plan_.validation_episodes]) return;
  ++validation_done_;
  validation_frames_ += result.frames;
}

void GenerationWork::SeeWhetherComplete() {
  // relaxed: the results are read after the threads that posted them were joined
  if (PopulationComplete() && validation_done_ == candidates_.size() * plan_.validation_episodes)
    finished_.store(true, std::memory_order_relaxed);
}

bool GenerationWork::Finished() const { return (stop_ && stop_()) || Complete(); }

bool GenerationWork::Wanted(uint32_t index) const {
  if (Finished()) return false;
  if (index < plan_.population.size()) return true;
  const size_t individual = (index - plan_.population.size()) / plan_.validation_episodes;
  return !dropped_[individual].load(std::memory_order_relaxed);
}

bool GenerationWork::WaitForPopulation() {
  MutexLock lock(mu_);
  changed_.Wait(mu_, [this]() REQUIRES(mu_) { return PopulationComplete() || evaluator_is_done_; });
  return PopulationComplete();
}

void GenerationWork::EvaluatorIsDone() {
  const MutexLock lock(mu_);
  evaluator_is_done_ = true;
  changed_.NotifyAll();
}

GenerationWork::Counts GenerationWork::counts() const {
  const MutexLock lock(mu_);
  if (!PopulationComplete())
    return {false, population_done_, population_.size(), population_frames_, best_};
  return {true, validation_done_, candidates_.size() * plan_.validation_episodes,
          population_frames_ + validation_frames_, best_};
}

uint64_t GenerationWork::FramesPlayed() const {
  const MutexLock lock(mu_);
  uint64_t frames = population_frames_ - known_population_frames_ + validation_frames_;
  for (const uint32_t i : candidates_) {
    for (size_t e = 0; e < plan_.validation_episodes; ++e) {
      const auto known =
          known_validation_.find(static_cast<uint32_t>(i * plan_.validation_episodes + e));
      if (known != known_validation_.end()) frames -= known->second.frames;
    }
  }
  return frames;
}

std::vector<EpisodeResult> GenerationWork::ValidationOf(uint32_t individual) const {
  const MutexLock lock(mu_);
  std::vector<EpisodeResult> results;
  for (size_t e = 0; e < plan_.validation_episodes; ++e)
    results.push_back(
        validation_.at(static_cast<uint32_t>(individual * plan_.validation_episodes + e)));
  return results;
}

}  // namespace samara
