// The learner's loop: takes complete unrolls from the store, forms batches of them and has the
// agent learn from each; knows when updates that came to nothing call for a rollback.
//
// Asynchronous runs learn in the order of arrival and drop unrolls that are older than
// learn.lag_max; deterministic ones in the order that the configuration fixes, round by round.
// One thread at a time.
#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "rl/learner/agent.h"
#include "rl/trajectory/unroll_store.h"

namespace samara {

// One learner's part of a run: all of it, or a rank's.
struct LearnerShare {
  uint32_t slots = 1;   // environments
  uint32_t batch = 1;   // unrolls an update
  uint32_t shards = 1;  // equal parts of both
};

class LearnerLoop {
 public:
  using Unrolls = std::vector<UnrollStore::Loan>;
  static constexpr uint64_t kSkippedMax = 5;    // updates in a row that call for a rollback
  static constexpr uint64_t kRollbacksMax = 3;  // in a row; then the run gives up
  static constexpr uint64_t kSoundAgain = 100;  // updates after which the row is over

  // `stale`: called with each unroll that is too old to learn from. All are borrowed.
  LearnerLoop(const LearnConfig& learn, const LearnerShare& share, UnrollStore& store, Agent& agent,
              std::function<void(const Unroll&)> stale);

  // The next batch, in the order of its shards; nothing after a short wait.
  Unrolls NextBatch();
  // Learns from it. `frames` as in Agent::Update.
  Result<UpdateReport> Update(Unrolls batch, double frames);
  // Consequence of the last update.
  enum class Verdict : uint8_t {
    kGoOn,
    kRollBack,  // kSkippedMax updates in a row were not applied: restore the last good state
    kGiveUp,    // and rollbacks have not helped
  };
  Verdict verdict() const { return verdict_; }

  size_t waiting() const { return waiting_.size(); }  // unrolls
  void Clear() { waiting_.clear(); }                  // gives all buffers back

 private:
  using Key = std::pair<uint64_t, uint32_t>;  // round or arrival, and slot
  std::vector<Key> NextRound() const;
  void Take(Unrolls taken);

  const LearnConfig learn_;
  const LearnerShare share_;
  UnrollStore& store_;
  Agent& agent_;
  const std::function<void(const Unroll&)> stale_;
  std::map<Key, UnrollStore::Loan> waiting_;
  uint64_t arrivals_ = 0;
  Verdict verdict_ = Verdict::kGoOn;
  uint64_t skipped_in_a_row_ = 0, applied_in_a_row_ = 0, rollbacks_in_a_row_ = 0;
};

}  // namespace samara
