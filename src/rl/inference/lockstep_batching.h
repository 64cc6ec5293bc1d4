// Batches in lock-step: each half of a shard's slots steps together, rows in slot order, and round
// k (every slot's k-th unroll) plays a policy version that the configuration fixes. The batches are
// the same at any number of actors and threads, of servers that share a run's shards, and after any
// kill and resume.
//
// Thread safety: Park, Resume and parked may be called from any thread.
#pragma once

#include <atomic>
#include <vector>

#include "rl/inference/batching.h"
#include "rl/inference/inference_config.h"
#include "rl/trajectory/unroll_store.h"

namespace samara {

class LockstepBatching : public Batching {
 public:
  // `store` may be null: the newest version plays everything. REQUIRES: shards divide slots.
  LockstepBatching(const InferenceConfig& config, uint32_t slots, Model& model, UnrollStore* store);

  void Ready(uint32_t slot, uint64_t entries, SteadyTime now) override;
  void Rest(uint32_t slot) override;
  Wait NextWait(uint32_t live) override;
  bool Next(uint32_t live, InferenceBatch& batch) override;

  // The version that plays round `round`: as many updates as the unrolls of all rounds up to lag
  // before it make.
  uint64_t VersionOf(uint64_t round) const;
  // `round` and those after it wait, until Resume. REQUIRES: none of them has begun, and each Park
  // names a later round.
  void Park(uint64_t round) { park_round_ = round; }
  void Resume() { park_round_ = kNoRound; }
  // Whether every slot waits for its first action of that round.
  bool parked() const { return parked_at_ == park_round_; }

 private:
  struct Group {
    uint32_t first, end;  // slots
    uint32_t ready = 0, resting = 0;
    uint64_t round = 0;  // of the entry that its slots write next
    bool complete() const { return ready > 0 && ready + resting == end - first; }
  };
  bool MayRun(const Group& group, uint64_t version);

  const InferenceConfig config_;
  Model& model_;
  UnrollStore* const store_;
  const uint32_t slots_;
  std::vector<Group> groups_;
  std::vector<uint32_t> group_of_;  // by slot
  std::vector<bool> ready_;         // by slot
  size_t next_ = 0;                 // group after the one that ran last: all have their turn
  bool ran_ = false;                // the last Next made a batch
  static constexpr uint64_t kNoRound = ~uint64_t{0};
  std::atomic<uint64_t> park_round_{kNoRound}, parked_at_{0};
};

}  // namespace samara
