// Central inference: actors only step simulators; this server batches whatever observations are
// ready, asks the model once for all of them, answers with actions and writes what happened into
// the unroll store. Espeholt et al. 2020 (SEED RL, arXiv 1910.06591), section 3.
//
// Batches are asynchronous or in lock-step (batching.h); a server in lock-step has the same bits at
// any number of actors and threads, of servers that share a run's shards, and after any kill and
// resume.
// A slot whose unroll found no free buffer waits, without its next action: back-pressure never
// blocks a batch. One sick row fails alone.
//
// Thread safety: Serve runs on one thread; the rest may be called from any.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/mutex.h"
#include "fleet/fleet.h"
#include "rl/inference/inference_config.h"
#include "rl/inference/lockstep_batching.h"
#include "rl/inference/model.h"
#include "rl/trajectory/unroll_store.h"

namespace samara {

// One episode that came to its end.
struct EpisodeRecord {
  uint32_t slot = 0;
  uint64_t number = 0;  // of the slot's episodes
  double score = 0;     // undiscounted raw return
  uint64_t frames = 0;
  uint32_t steps = 0;
  bool truncated = false;
};

struct ServerHooks {
  // The slot's `number`-th episode; nothing: the slot rests for good.
  std::function<std::optional<EpisodeSpec>(uint32_t slot, uint64_t number)> next;
  std::function<void(const EpisodeRecord&)> ended;  // may be empty
  // After every event of an episode, while its pictures are valid, with its sums so far; may be
  // empty.
  std::function<void(const EpisodeRecord&)> shown;
};

class InferenceServer {
 public:
  // `store` may be null: nothing is stored for learning. All outlive the server.
  InferenceServer(Fleet& fleet, Model& model, UnrollStore* store, const InferenceConfig& config,
                  ServerHooks hooks);
  ~InferenceServer();

  // Until Stop, until every slot rests, or until the fleet fails for good.
  Status Serve();
  void Stop();

  // Null unless the configuration is ordered.
  LockstepBatching* lockstep() { return lockstep_; }
  // State that continues with the same bits. REQUIRES: lockstep()->parked(), or before Serve.
  std::string Save() const;
  Status Restore(std::string_view saved);  // kBadData

  // Totals of the server so far, for metrics and the live view.
  struct Counters {
    uint64_t rows = 0, batches = 0, steps = 0, episodes = 0, frames = 0;
    uint64_t lost_episodes = 0, not_finite = 0, replayed = 0;
    uint64_t stalls = 0;  // times a slot had to wait for a free buffer
    double wait_seconds = 0, infer_seconds = 0, rest_seconds = 0;  // of the serving thread
  };
  Counters counters() const;

 private:
  struct Slot;
  uint64_t KeyOf(uint32_t slot, uint64_t episode) const;
  void Begin(uint32_t slot);
  void Restart(uint32_t slot);
  void Take(const SlotEvent& event);
  void TakeObservation(uint32_t index, const SlotEvent& event);
  void TakeEnd(uint32_t index, const SlotEvent& event);
  size_t Recorded(const Slot& slot) const;
  Status NextBatch(std::span<SlotEvent> events);
  Status RunBatch();
  void Answer(size_t row);
  void AppendEntry(size_t row);
  void Act(uint32_t index, Action action);
  Status Failure() const;
  Status RestoreSlot(uint32_t slot, std::string_view record);

  Fleet& fleet_;
  Model& model_;
  UnrollStore* const store_;
  const InferenceConfig config_;
  const ServerHooks hooks_;
  const ActionSpec action_;
  InferenceBatch batch_;
  std::vector<SlotAction> actions_;  // of one batch
  std::vector<Slot> slots_;
  std::unique_ptr<Batching> batching_;
  LockstepBatching* lockstep_ = nullptr;  // the same, if it is one
  SteadyTime now_;                        // when the fleet was last asked for events
  uint32_t resting_ = 0;
  Status failure_;
  std::atomic<bool> stop_{false};
  mutable Mutex mu_;
  Counters counters_ GUARDED_BY(mu_);  // written once a batch
  Counters local_;                     // of the serving thread
};

}  // namespace samara
