// Plays the episodes of an evolution, one generation after the other: population and validation as
// one piece of work, then what is played apart (validation of one policy, test).
//
// An algorithm says what is played; this class keeps what every algorithm needs: keys of episodes,
// finished episodes that outlive a stop or a crash, and the progress that the live view shows.
// Thread safety: progress from any thread; everything else from one.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/mutex.h"
#include "core/rng.h"
#include "core/thread.h"
#include "evo/evaluate/evaluator.h"
#include "evo/evaluate/finished_episodes.h"
#include "evo/evaluate/generation_scheduler.h"
#include "evo/evaluate/ordered_work.h"

namespace samara {

// Snapshot for the live view.
struct EvolutionProgress {
  std::string phase;  // empty: between phases
  size_t done = 0, total = 0;
  uint64_t generation = 0, frames = 0;                     // frames of the whole run so far
  double best = std::numeric_limits<double>::quiet_NaN();  // fitness in this generation so far
  // of all phases of the generation that is played; 0 between phases
  size_t episodes_done = 0, episodes_total = 0;
};

// The smaller of two limits, where 0 means none.
inline int64_t ShorterLimit(int64_t a, int64_t b) { return a == 0 || (b != 0 && b < a) ? b : a; }

class GenerationPlayer {
 public:
  using Results = std::vector<EpisodeResult>;

  // `evaluator` outlives this object.
  GenerationPlayer(uint64_t seed, Evaluator& evaluator, EpisodeRule episodes);

  // Plays the generation after `generation` next; `frames` were counted until then. Finished
  // episodes of an earlier one are dropped.
  void StartAfter(uint64_t generation, uint64_t frames);
  // Hands the finished episodes of the running generation to `keep`, every `seconds` and when the
  // generation is stopped or fails, and before recordings fill the memory; from any thread, one
  // call at a time. False: not kept, handed over again with the next.
  void KeepFinished(double seconds, std::function<bool(const FinishedEpisodes&)> keep);
  // Episodes that were kept, which are not played again. Those of another generation are ignored.
  void Reuse(const FinishedEpisodes& finished);

  // Key of a draw for the generation that is played next.
  uint64_t Key(Purpose purpose, uint64_t individual, uint64_t episode = 0) const {
    return DeriveKey(seed_, purpose, next_generation(), individual, episode);
  }
  // Tasks for a GenerationPlan; the handle's id is the individual.
  Task PopulationTask(uint32_t individual, uint64_t episode, double frames_expected = 0) const;
  Task ValidationTask(uint32_t individual, uint64_t episode) const;
  // Whether several ranks play: what there is to claim may then not depend on results.
  bool shared() const { return evaluator_.shared(); }

  class Running;  // population and validation

  // Plays `tasks` of further members of the population after Running; their numbers among its
  // episodes begin with `first`. `reduce`: what GenerationPlan says. kTryAgain when `stop` was set
  // meanwhile: what had finished is kept.
  Result<Results> PlayFurther(std::span<const Task> tasks, uint32_t first,
                              const ParameterSource& members, const StopToken& stop,
                              std::function<void(EpisodeResult&)> reduce = {});

  // Plays a population whose tasks follow from each other's results, all of it the generation's
  // episodes. Finished episodes are not kept when tasks record what they see, which nothing keeps.
  // kTryAgain when `stop` was set meanwhile.
  Result<Results> PlayOrdered(OrderedWork::Plan plan, const ParameterSource& policies, bool records,
                              const StopToken& stop);
  // Plays population episodes of earlier generations again, for what they saw: policy {i, 0} those
  // of keys[i]. Nothing of them is kept or counted.
  Result<std::vector<SharedExperience>> Replay(const ParameterSource& policies,
                                               std::span<const uint64_t> keys,
                                               const StopToken& stop);
  // Whether what an episode saw comes back.
  bool records() const { return evaluator_.records(); }

  // Plays `episodes` of one policy after them: the validation of `individual`, or the test of the
  // generation. kTryAgain when `stop` was set meanwhile: what had finished is kept.
  // `frames_max`: of an episode, besides the environment's limit; 0 = none.
  Result<Results> Validate(const ParameterSource& policy, uint32_t individual, size_t episodes,
                           const StopToken& stop, int64_t frames_max = 0);
  Result<Results> Test(const ParameterSource& policy, size_t episodes, const StopToken& stop);
  // Fresh test episodes, keyed by `purpose`, outside any generation; nothing of them is kept.
  Result<Results> Play(const ParameterSource& policy, Purpose purpose, size_t episodes,
                       const StopToken& stop);

  // Frames of the generation's episodes, without tests, that were known before they were played.
  // REQUIRES: no episodes are played.
  uint64_t frames_reused() const { return frames_reused_; }

  EvolutionProgress progress() const;

 private:
  // No thread writes it while episodes are played, and otherwise only the thread that plays.
  uint64_t next_generation() const NO_THREAD_SAFETY_ANALYSIS { return generation_ + 1; }
  std::vector<Task> TestTasks(Purpose purpose, size_t episodes) const;
  // Plays tasks of `phase`, numbered from `first` in it.
  Result<Results> PlayApart(Phase phase, std::span<const Task> tasks, uint32_t first,
                            const ParameterSource& policy, const StopToken& stop,
                            std::function<void(EpisodeResult&)> reduce = {});
  Result<Results> PlayAll(LocalWork& work, std::span<const Task> tasks, Phase phase,
                          const ParameterSource& policy, size_t episodes_total);
  void Note(Phase phase, uint32_t index, const EpisodeResult& result);
  void KeepNow();
  void Show(std::function<EvolutionProgress()> progress, uint64_t frames_before);

  // constant after construction
  const uint64_t seed_;
  Evaluator& evaluator_;
  const EpisodeRule episodes_;
  // written only by the thread that plays, and not while episodes are played
  double keep_seconds_ = 0;
  std::function<bool(const FinishedEpisodes&)> keep_;
  uint64_t frames_ = 0;                              // counted in complete generations
  uint64_t frames_reused_ = 0;                       // of the generation that is played
  size_t episodes_total_ = 0, episodes_before_ = 0;  // of the generation; of its earlier phases
  // written by it, or by the thread that posts a result
  std::map<Phase, ResultsByIndex> finished_, unkept_;
  size_t unkept_bytes_ = 0;  // of recordings
  SteadyTime kept_at_ = Now();
  mutable Mutex mu_;
  // written by the thread that plays, read by others
  std::function<EvolutionProgress()> shown_ GUARDED_BY(mu_);  // frames on top of frames_before_
  uint64_t generation_ GUARDED_BY(mu_) = 0;                   // the last complete one
  uint64_t frames_before_ GUARDED_BY(mu_) = 0;
};

// Population and validation of the next generation, played on a thread of its own: the caller goes
// on as soon as the population is complete, while validation is played. The destructor stops what
// still plays.
class GenerationPlayer::Running {
 public:
  // `policies` and `stop` outlive this object. `episodes_total`: of all phases of the generation.
  Running(GenerationPlayer& player, GenerationPlan plan, const ParameterSource& policies,
          size_t episodes_total, const StopToken& stop);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  Status Start();
  // Wait until every member, or every candidate too, has played. kTryAgain: stopped before.
  Status Population();
  Status Validation();
  // All of it, for a plan without validation.
  Status Play();
  const GenerationWork& work() const { return work_; }

 private:
  Status Ended(const char* phase);
  EvolutionProgress Progress() const;

  GenerationPlayer& player_;
  std::atomic<bool> stopped_{false};
  GenerationWork work_;
  const ParameterSource& policies_;
  Status played_;  // what the evaluator said, once the thread has ended
  ThreadGroup thread_{[this] { stopped_ = true; }};  // last: it uses everything above
};

}  // namespace samara
