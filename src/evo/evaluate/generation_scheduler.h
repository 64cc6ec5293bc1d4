// The population's episodes and the validation of its best members as one piece of work, so that
// what the last episodes of the population leave idle validates already.
//
// Before the population is complete the candidates are unknown. Once all its episodes are claimed
// the old elite, which is certain, and the best members so far are validated: speculative
// validation. A member that a later result displaces is dropped: its running episodes are unwanted,
// its results unused. Ranks only worsen while members finish, so what is dropped stays dropped. A
// validation task depends on the individual, never on its rank: speculation decides no result.
//
// Thread safety: every method may be called from any thread.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <limits>
#include <set>
#include <span>
#include <vector>

#include "core/mutex.h"
#include "evo/evaluate/evaluator.h"
#include "evo/evaluate/finished_episodes.h"

namespace samara {

// Means over the episodes of each individual.
struct EpisodeMeans {
  std::vector<double> fitness, frames;
  void Add(std::span<const EpisodeResult> episodes);  // one individual more
};

// Episodes of one generation. Individuals are the members by their numbers, then the old elite.
struct GenerationPlan {
  std::vector<Task> population;    // member by member
  size_t episodes = 1;             // of each member
  size_t validation_episodes = 0;  // of each candidate; 0 = no validation
  double elite_frames = 0;         // what an episode of the old elite takes; 0 = unknown
  // Whether the best members so far are validated before the population is complete; false: only
  // the old elite.
  bool speculate = true;
  // Individuals to validate if this is the members' fitness; NaN where it is not known yet.
  std::function<std::vector<uint32_t>(std::span<const double> fitness)> candidates;
  std::function<Task(uint32_t individual, uint32_t episode)> validation;
  // Takes from a result of the population what shall not be kept (WorkSource::Reduced); from any
  // thread. Empty: everything is kept.
  std::function<void(EpisodeResult&)> reduce{};
};

class GenerationWork : public WorkSource {
 public:
  // Results that are known already are not played again: by index in plan.population, and by
  // individual * validation_episodes + episode.
  GenerationWork(GenerationPlan plan, StopToken stop, const ResultsByIndex& population = {},
                 const ResultsByIndex& validation = {});

  // Every new result is also handed to `sink`, under its index as above, by the thread that posts
  // it, one at a time. REQUIRES: no evaluator is running on this source.
  using Sink = std::function<void(Phase phase, uint32_t index, const EpisodeResult& result)>;
  void OnPost(Sink sink) {
    const MutexLock lock(sink_mu_);
    sink_ = std::move(sink);
  }

  std::optional<uint32_t> Claim() override;
  Task TaskOf(uint32_t index) const override;
  void Post(uint32_t index, const EpisodeResult& result) override;
  void PostExperience(uint32_t index, SharedExperience experience) override;
  bool Finished() const override;
  bool Wanted(uint32_t index) const override;
  EpisodeResult Reduced(EpisodeResult result) const override;

  // Blocks until every member has its results, or the evaluator is done. Whether they have.
  bool WaitForPopulation();
  void EvaluatorIsDone();  // no result comes any more

  struct Counts {
    bool validating = false;                                 // the population is complete
    size_t done = 0, total = 0;                              // episodes of the phase
    uint64_t frames = 0;                                     // of episodes that count for certain
    double best = std::numeric_limits<double>::quiet_NaN();  // fitness of the members that have one
  };
  Counts counts() const;
  // Results of the population. REQUIRES: WaitForPopulation was true, after which they are constant.
  std::span<const EpisodeResult> population() const NO_THREAD_SAFETY_ANALYSIS {
    return population_;
  }
  const EpisodeMeans& means() const NO_THREAD_SAFETY_ANALYSIS { return means_; }
  // Observations of a member's last episode; null unless its task recorded it and was played since
  // the start of the process. REQUIRES: as above.
  SharedExperience ExperienceOf(uint32_t member) const NO_THREAD_SAFETY_ANALYSIS {
    return experiences_[member];
  }
  // Every result that counts is in.
  bool Complete() const { return finished_.load(std::memory_order_relaxed); }
  // Frames of the results that count, without those that were known at the start. REQUIRES:
  // Complete.
  uint64_t FramesPlayed() const;
  // Results of one candidate. REQUIRES: Complete.
  std::vector<EpisodeResult> ValidationOf(uint32_t individual) const;

 private:
  bool PopulationComplete() const REQUIRES(mu_) { return population_done_ == population_.size(); }
  // Whether it is new.
  bool PostPopulation(uint32_t index, const EpisodeResult& result) REQUIRES(mu_);
  bool PostValidation(uint32_t index, const EpisodeResult& result) REQUIRES(mu_);
  void ChooseCandidates() REQUIRES(mu_);
  void Count(uint32_t validation_index, const EpisodeResult& result) REQUIRES(mu_);
  void SeeWhetherComplete() REQUIRES(mu_);

  // constant after construction
  const GenerationPlan plan_;
  const StopToken stop_;
  const uint32_t members_;             // = the old elite's number
  const std::vector<uint32_t> order_;  // of the population's episodes
  const ResultsByIndex known_validation_;
  uint64_t known_population_frames_ = 0;
  Mutex sink_mu_;
  Sink sink_ GUARDED_BY(sink_mu_);  // one call at a time
  // written under mu_, read without it, once per step
  std::atomic<bool> finished_{false};
  std::vector<std::atomic<bool>> dropped_;  // by individual
  mutable Mutex mu_;
  CondVar changed_;                           // the population is complete, evaluator_is_done_
  size_t next_ GUARDED_BY(mu_) = 0;           // in order_
  bool all_claimed_ GUARDED_BY(mu_) = false;  // every episode of the population
  std::vector<EpisodeResult> population_ GUARDED_BY(mu_);
  std::vector<SharedExperience> experiences_ GUARDED_BY(mu_);  // by member
  size_t population_done_ GUARDED_BY(mu_) = 0;
  uint64_t population_frames_ GUARDED_BY(mu_) = 0;
  std::vector<size_t> left_ GUARDED_BY(mu_);  // episodes without result, by member
  EpisodeMeans means_ GUARDED_BY(mu_);        // of members that have finished; NaN and 0
  double best_ GUARDED_BY(mu_) = std::numeric_limits<double>::quiet_NaN();  // of their fitness
  // of validation, as far as it is known
  std::vector<uint32_t> candidates_ GUARDED_BY(mu_);
  std::vector<bool> is_candidate_ GUARDED_BY(mu_);  // by individual
  std::deque<uint32_t> queue_ GUARDED_BY(mu_);      // indices to claim
  std::set<uint32_t> claimed_ GUARDED_BY(mu_);
  ResultsByIndex validation_ GUARDED_BY(mu_);   // of any individual
  size_t validation_done_ GUARDED_BY(mu_) = 0;  // of the candidates
  uint64_t validation_frames_ GUARDED_BY(mu_) = 0;
  bool evaluator_is_done_ GUARDED_BY(mu_) = false;
};

}  // namespace samara
