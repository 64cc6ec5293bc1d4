// Asynchronous batches: one runs when it is full, when the low mark of live slots is ready, or when
// the oldest row has waited long enough. An actor that is slow or gone delays no other.
#pragma once

#include <vector>

#include "core/ring.h"
#include "rl/inference/batching.h"
#include "rl/inference/inference_config.h"
#include "rl/trajectory/unroll_store.h"

namespace samara {

class AsyncBatching : public Batching {
 public:
  // `store` may be null: no slot waits for a buffer.
  AsyncBatching(const InferenceConfig& config, uint32_t slots, UnrollStore* store);

  void Ready(uint32_t slot, uint64_t entries, SteadyTime now) override;
  void Rest(uint32_t) override {}
  Wait NextWait(uint32_t live) override;
  bool Next(uint32_t live, InferenceBatch& batch) override;

 private:
  size_t LowMark(uint32_t live) const;
  bool MayRun(uint32_t live) const;
  void Unstall();

  const InferenceConfig config_;
  UnrollStore* const store_;
  std::vector<SteadyTime> since_;  // by slot: when it became ready
  Ring<uint32_t> ready_;           // slots in the order they became ready
  Ring<uint32_t> stalled_;         // wait for a buffer
};

}  // namespace samara
