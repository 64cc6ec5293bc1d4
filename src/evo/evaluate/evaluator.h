// Plays episodes: tasks in, one result per task out, independent of the thread or process
// that steps the environments.
//
// Work is taken through a WorkSource (claim an index, post its result), so that a generation ends
// when every index has a result, whichever thread, actor or rank produced it. A result
// depends only on its task: policy and EpisodeSpec. The order in which tasks are claimed is the
// source's business and changes no result.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/mutex.h"
#include "env/episode.h"
#include "evo/evaluate/policy.h"
#include "fleet/fleet.h"

namespace samara {

enum class Role : uint8_t { kTrain, kEvaluate };

struct Task {
  PolicyHandle policy;
  Role role = Role::kTrain;
  EpisodeSpec episode;
  double frames_expected = 0;  // of its episode; 0 = unknown. Decides when it is played, no more
  bool experience = false;     // the states of its episode come back with its result
};

// States of an episode, shared by those that look at them.
using SharedExperience = std::shared_ptr<const Experience>;

// Hands out task indices and collects results. Thread safe.
class WorkSource {
 public:
  virtual ~WorkSource() = default;
  // Nothing to claim now: empty. There may be later, until the work is finished.
  virtual std::optional<uint32_t> Claim() = 0;
  virtual Task TaskOf(uint32_t index) const = 0;  // REQUIRES: index was claimed
  virtual void Post(uint32_t index, const EpisodeResult& result) = 0;  // a duplicate is ignored
  // The states of a task with `experience`, before its result. A duplicate has the same bits.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): overrides keep the experience
  virtual void PostExperience(uint32_t /*index*/, SharedExperience /*experience*/) {}
  virtual bool Finished() const = 0;  // all results in, or stopped
  // False: the result of this claimed index is no longer needed; its episode may be stopped.
  virtual bool Wanted(uint32_t /*index*/) const { return !Finished(); }
  // Returns the part of a result that is kept and sent to other ranks: a large recording as a
  // number, perhaps. The same again for a result that was reduced before.
  virtual EpisodeResult Reduced(EpisodeResult result) const { return result; }
};

using ResultsByIndex = std::map<uint32_t, EpisodeResult>;

// In which order to play so that no long episode is left for the end: unknown lengths first, then
// the longest; ties to the lower index.
std::vector<uint32_t> LongestFirst(std::span<const Task> tasks);

// Bytes that a step adds to a recording.
size_t RowBytes(RecordKind record, const EnvironmentSpec& spec);
// Appends the row of a step to a recording.
template <typename T>
void AppendRow(std::span<const T> row, std::vector<std::byte>& recording) {
  const auto bytes = std::as_bytes(row);
  recording.insert(recording.end(), bytes.begin(), bytes.end());
}

// All tasks of one call on this machine, the longest first.
class LocalWork : public WorkSource {
 public:
  // `tasks` outlive this object; those whose results are `known` already are not played again.
  LocalWork(std::span<const Task> tasks, StopToken stop, const ResultsByIndex& known = {});

  // Every new result is also handed to `sink`, by the thread that posts it, one at a time.
  // REQUIRES: no evaluator is running on this source.
  using Sink = std::function<void(uint32_t index, const EpisodeResult& result)>;
  void OnPost(Sink sink) {
    const MutexLock lock(sink_mu_);
    sink_ = std::move(sink);
  }

  // Takes from a result what shall not be kept. REQUIRES: as above.
  void Reduce(std::function<void(EpisodeResult&)> reduce) { reduce_ = std::move(reduce); }

  std::optional<uint32_t> Claim() override;
  Task TaskOf(uint32_t index) const override { return tasks_[index]; }
  void Post(uint32_t index, const EpisodeResult& result) override;
  bool Finished() const override;
  EpisodeResult Reduced(EpisodeResult result) const override {
    if (reduce_) reduce_(result);
    return result;
  }
  void PostExperience(uint32_t index, SharedExperience experience) override;
  // REQUIRES: as above.
  std::vector<EpisodeResult> TakeResults() {
    const MutexLock lock(mu_);
    return std::move(results_);
  }
  // By task; null where none was recorded. REQUIRES: as above.
  std::vector<SharedExperience> TakeExperiences() {
    const MutexLock lock(mu_);
    experiences_.resize(tasks_.size());
    return std::move(experiences_);
  }
  size_t posted() const { return posted_.load(std::memory_order_relaxed); }
  uint64_t frames() const { return frames_.load(std::memory_order_relaxed); }

 private:
  const std::span<const Task> tasks_;
  const StopToken stop_;
  const std::vector<uint32_t> order_;
  // written under mu_, read without it: counts for the live view, and for Finished, once per step
  std::atomic<size_t> posted_{0};
  std::atomic<uint64_t> frames_{0};
  Mutex mu_;
  size_t next_ GUARDED_BY(mu_) = 0;  // in order_
  std::vector<EpisodeResult> results_ GUARDED_BY(mu_);
  std::vector<SharedExperience> experiences_ GUARDED_BY(mu_);  // empty before the first
  std::function<void(EpisodeResult&)> reduce_;                 // constant while an evaluator runs
  Mutex sink_mu_;
  Sink sink_ GUARDED_BY(sink_mu_);  // one call at a time
};

// Time spent so far, summed over threads (actors for the environment).
struct StageSeconds {
  double decode = 0, inference = 0, environment = 0;
};
inline StageSeconds operator+(const StageSeconds& a, const StageSeconds& b) {
  return {a.decode + b.decode, a.inference + b.inference, a.environment + b.environment};
}

class Evaluator {
 public:
  virtual ~Evaluator() = default;
  virtual const EnvironmentSpec& spec() const = 0;
  // Blocks until `work` is finished. Not ok when the fleet or a device failed for good.
  virtual Status Play(const ParameterSource& source, WorkSource& work) = 0;
  virtual StageSeconds seconds() const = 0;
  virtual FleetCounters counters() const = 0;
  // Whether several ranks play one work (peers.h): what there is to claim may then not depend on
  // results that one of them knows before the others.
  virtual bool shared() const { return false; }
  // Whether states of tasks with `experience` come back. Not where whole episodes are played
  // elsewhere.
  virtual bool records() const { return true; }
};

class SlotPolicies;
// `threads` inference threads over a fleet's slots, whose policies are `policies` (slot_policies.h)
// or, of a model, one network per slot on this CPU.
Result<std::unique_ptr<Evaluator>> MakeSlotEvaluator(std::unique_ptr<Fleet> fleet,
                                                     std::unique_ptr<SlotPolicies> policies,
                                                     uint32_t threads);
std::unique_ptr<Evaluator> MakeSlotEvaluator(std::unique_ptr<Fleet> fleet,
                                             std::unique_ptr<PolicyModel> model, uint32_t threads);
// Actor processes that play whole episodes next to their simulators, so that no step crosses a
// process. `recording_bytes`: bound of what an episode records; 0 = none does.
Result<std::unique_ptr<Evaluator>> MakeEpisodeEvaluator(std::unique_ptr<Fleet> fleet,
                                                        std::unique_ptr<PolicyModel> model,
                                                        size_t recording_bytes = 0);
// Native environments, whole episodes on a thread, weights resident in its cache: one after the
// other, or a few side by side where steps have cost less than `cheap_step` seconds so far, since
// then a small network mostly waits for its own additions. The results are the same.
Result<std::unique_ptr<Evaluator>> MakeDirectEvaluator(const EnvironmentFactory& factory,
                                                       std::unique_ptr<PolicyModel> model,
                                                       uint32_t threads, double cheap_step = 1e-6);

}  // namespace samara
