#include "rl/inference/async_batching.h"

#include <algorithm>

namespace samara {

using std::chrono::microseconds;

AsyncBatching::AsyncBatching(const InferenceConfig& config, uint32_t slots, UnrollStore* store)
    : config_(config), store_(store), since_(slots), ready_(slots), stalled_(slots) {}

void AsyncBatching::Ready(uint32_t slot, uint64_t, SteadyTime now) {
  since_[slot] = now;
  ready_.Push(slot);
}

// Rows that are enough for a batch.
size_t AsyncBatching::LowMark(uint32_t live) const {
  auto mark = static_cast<size_t>(config_.low_mark * live);
  if (config_.rows_wanted > 0) mark = std::min<size_t>(mark, config_.rows_wanted);
  return std::clamp<size_t>(mark, 1, config_.batch_max);
}

bool AsyncBatching::MayRun(uint32_t live) const {
  if (ready_.empty()) return false;
  return ready_.size() >= LowMark(live) || SecondsSince(since_[ready_[0]]) >= config_.wait;
}

// The first row starts the clock; after it, only a batch's worth or its time is worth waking for.
Batching::Wait AsyncBatching::NextWait(uint32_t live) {
  if (MayRun(live)) return {1, microseconds(0)};
  if (ready_.empty()) return {1, stalled_.empty() ? kIdleWait : kStallWait};
  const double left = config_.wait - SecondsSince(since_[ready_[0]]);
  return {LowMark(live) - ready_.size(),
          std::clamp(microseconds(static_cast<int64_t>(left * 1e6)), microseconds(1), kIdleWait)};
}

// Slots whose unrolls have room again are ready.
void AsyncBatching::Unstall() {
  for (size_t n = stalled_.size(); n > 0; --n) {
    const uint32_t slot = stalled_.Pop();
    if (store_->Reserve(slot))
      Ready(slot, 0, Now());
    else
      stalled_.Push(slot);
  }
}

bool AsyncBatching::Next(uint32_t live, InferenceBatch& batch) {
  Unstall();
  if (!MayRun(live)) return false;
  while (!ready_.empty() && batch.rows.size() < config_.batch_max) {
    const uint32_t slot = ready_.Pop();
    if (store_ != nullptr && !store_->Reserve(slot)) {
      ++stalls_;
      stalled_.Push(slot);
      continue;
    }
    AddRow(slot, batch);
  }
  batch.version = InferenceBatch::kNewest;
  return !batch.rows.empty();
}

}  // namespace samara
