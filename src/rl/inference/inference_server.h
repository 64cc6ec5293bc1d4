// Central inference: actors only step simulators; this server batches whatever observations are
// ready, asks the model once for all of them, answers with actions and writes what happened into
// the unroll store. Espeholt et al. 2020 (SEED RL, arXiv 1910.06591), section 3.
//
// Two ways to form batches:
//   free     a batch runs when it is full, when the low mark of live slots is ready, or when the
//            oldest row has waited long enough; whoever vanishes or is slow delays nobody else
//   ordered  each half of a shard's slots steps in lockstep, rows in slot order, and round k (every
//            slot's k-th unroll) plays a policy version that the configuration fixes: the same bits
//            at any number of actors and threads, of servers that share a run's shards, and after
//            any kill and resume. An episode that its actor lost is played again with the
//            actions it had
// A slot whose unroll found no free buffer waits, its next action withheld: back-pressure never
// blocks a batch. One sick row fails alone.
//
// Thread safety: Serve runs on one thread; the rest may be called from any.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/ring.h"
#include "env/atari_preset.h"
#include "fleet/fleet.h"
#include "rl/inference/model.h"
#include "rl/trajectory/reward_transform.h"
#include "rl/trajectory/slot_records.h"
#include "rl/trajectory/unroll_store.h"

namespace samara {

struct InferenceConfig {
  uint32_t batch_max = 64;   // rows
  double wait = 0.002;       // s that the oldest ready row waits at most
  double low_mark = 0.5;     // of the live slots: run once so many are ready
  uint32_t rows_wanted = 0;  // run once so many are ready, if that is less; 0 = no such mark
  RewardMode rewards = RewardMode::kRaw;
  LifeLoss life_loss = LifeLoss::kIgnored;
  uint64_t seed = 0;    // of the draws of actions
  bool greedy = false;  // the most probable action instead of a draw
  SlotShare share{};    // which of the run's slots these are: draws belong to a slot of the run

  bool ordered = false;
  uint64_t lag = 1;                 // ordered: rounds between acting and learning
  uint32_t unroll_length = 0;       // ordered: entries of a round
  uint32_t unrolls_per_update = 0;  // ordered: of these slots
  uint32_t shards = 1;              // ordered: equal parts of these slots that share no batch
};

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
  // `store` may be null: nothing is learnt. All outlive the server.
  InferenceServer(Fleet& fleet, Model& model, UnrollStore* store, const InferenceConfig& config,
                  ServerHooks hooks);
  ~InferenceServer();

  // Until Stop, until every slot rests, or until the fleet fails for good.
  Status Serve();
  void Stop();

  // Ordered only. The version that plays round `round`: as many updates as the unrolls of all
  // rounds up to lag before it make.
  uint64_t VersionOf(uint64_t round) const;
  // `round` and those after it wait, until Resume. REQUIRES: none of them has begun, and each Park
  // names a later round.
  void Park(uint64_t round);
  void Resume();
  // Whether every slot waits for its first action of that round.
  bool parked() const { return parked_at_ == park_round_; }
  // What continues with the same bits. REQUIRES: parked, or before Serve.
  std::string Save() const;
  Status Restore(std::string_view saved);  // kBadData

  // What the server did so far, for metrics and the live view.
  struct Counters {
    uint64_t rows = 0, batches = 0, steps = 0, episodes = 0, frames = 0;
    uint64_t lost_episodes = 0, not_finite = 0, replayed = 0;
    uint64_t stalls = 0;  // times a slot had to wait for a free buffer
    double wait_seconds = 0, infer_seconds = 0, rest_seconds = 0;  // of the serving thread
    uint64_t ready = 0;                                            // rows that wait now
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
  void Ready(uint32_t index);
  void ServeFree(std::span<SlotEvent> events);
  void ServeOrdered(std::span<SlotEvent> events);
  size_t LowMark() const;
  bool MayRun() const;
  std::chrono::microseconds FreeTimeout() const;
  void Unstall();
  bool RunGroup(uint32_t group);
  uint64_t RoundOf(uint32_t group) const;
  void AddRow(uint32_t index);
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
  SteadyTime now_;                   // when the fleet was last asked for events
  std::vector<Slot> slots_;
  Ring<uint32_t> ready_;    // in the order they came; ordered: unused
  Ring<uint32_t> stalled_;  // wait for a buffer
  struct Group {
    uint32_t first, end;  // slots
    uint32_t ready = 0, resting = 0;
  };
  std::vector<Group> groups_;
  uint32_t resting_ = 0;
  Status failure_;
  static constexpr uint64_t kNoRound = ~uint64_t{0};
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> park_round_{kNoRound}, parked_at_{0};
  mutable std::mutex mu_;
  Counters counters_;  // guarded by mu_; written once a batch
  Counters local_;     // of the serving thread
};

}  // namespace samara
