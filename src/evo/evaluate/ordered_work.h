// Work whose tasks follow from earlier results, for algorithms without generations.
//
// Results are merged in the order of their tasks, and task i is made as soon as the results of all
// tasks up to i - window are merged: neither the thread nor the duration of an episode affects the
// result. A wider window keeps more threads, actors and ranks busy.
//
// Thread safety: every method may be called from any thread. `make` and `merge` are called by those
// that claim and post, one call at a time, in order, and must not call this object.
#pragma once

#include <atomic>
#include <functional>
#include <limits>
#include <vector>

#include "core/mutex.h"
#include "evo/evaluate/evaluator.h"

namespace samara {

class OrderedWork : public WorkSource {
 public:
  struct Plan {
    size_t tasks = 0;
    size_t window = 1;  // at least 1
    std::function<Task(uint32_t index)> make;
    // `experience` is null unless the task records.
    std::function<void(uint32_t index, const EpisodeResult& result, SharedExperience experience)>
        merge;
  };
  // Tasks whose results are `known` already are not played again.
  OrderedWork(Plan plan, StopToken stop, const ResultsByIndex& known = {});

  // As LocalWork's.
  using Sink = LocalWork::Sink;
  void OnPost(Sink sink) {
    const MutexLock lock(mu_);
    sink_ = std::move(sink);
  }

  std::optional<uint32_t> Claim() override;
  Task TaskOf(uint32_t index) const override;
  void Post(uint32_t index, const EpisodeResult& result) override;
  void PostExperience(uint32_t index, SharedExperience experience) override;
  bool Finished() const override;

  bool Complete() const { return complete_.load(std::memory_order_relaxed); }
  struct Counts {
    size_t done = 0;
    uint64_t frames = 0;
    double best = std::numeric_limits<double>::quiet_NaN();
  };
  Counts counts() const;
  // By task. REQUIRES: no evaluator is running on this source.
  std::vector<EpisodeResult> TakeResults() {
    const MutexLock lock(mu_);
    return std::move(results_);
  }

 private:
  // Merges what can be merged, makes what can be made.
  void Advance() REQUIRES(mu_);

  const Plan plan_;
  const StopToken stop_;
  std::atomic<bool> complete_{false};  // written under mu_, read without it, once per step
  mutable Mutex mu_;
  std::vector<Task> made_ GUARDED_BY(mu_);
  size_t claimed_ GUARDED_BY(mu_) = 0, merged_ GUARDED_BY(mu_) = 0;
  std::vector<EpisodeResult> results_ GUARDED_BY(mu_);
  std::vector<SharedExperience> experiences_ GUARDED_BY(mu_);  // until they are merged
  Counts counts_ GUARDED_BY(mu_);
  Sink sink_ GUARDED_BY(mu_);
};

}  // namespace samara
