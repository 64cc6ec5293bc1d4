// Forms batches: decides when one runs and which of the slots that wait for an action are in it,
// asynchronously (async_batching.h) or in lock-step (lockstep_batching.h).
//
// One thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "core/clock.h"
#include "rl/inference/model.h"

namespace samara {

class Batching {
 public:
  static constexpr std::chrono::microseconds kIdleWait{20'000};  // until a stop is noticed
  static constexpr std::chrono::microseconds kStallWait{1'000};  // until a freed buffer is noticed

  virtual ~Batching() = default;
  // The slot waits for an action since `now`; its stream has `entries` entries so far.
  virtual void Ready(uint32_t slot, uint64_t entries, SteadyTime now) = 0;
  // The slot will never be ready again.
  virtual void Rest(uint32_t slot) = 0;

  // How long the server waits for events before it asks for the next batch: until there are so
  // many, at most so long. `live`: slots whose actors are there.
  struct Wait {
    size_t events;
    std::chrono::microseconds timeout;
  };
  virtual Wait NextWait(uint32_t live) = 0;
  // Fills in slots, `padded` and `version` of the next batch, whose slots are no longer ready;
  // false: none runs now. REQUIRES: batch.rows is empty.
  virtual bool Next(uint32_t live, InferenceBatch& batch) = 0;

  // Times that a batch went without a slot, or did not run, for want of a free buffer.
  uint64_t stalls() const { return stalls_; }

 protected:
  static void AddRow(uint32_t slot, InferenceBatch& batch) {
    batch.rows.emplace_back().slot = slot;
  }

  uint64_t stalls_ = 0;
};

}  // namespace samara
