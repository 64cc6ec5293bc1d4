#include "rl/inference/lockstep_batching.h"

#include <algorithm>

#include "core/check.h"

namespace samara {

LockstepBatching::LockstepBatching(const InferenceConfig& config, uint32_t slots, Model& model,
                                   UnrollStore* store)
    : config_(config),
      model_(model),
      store_(store),
      slots_(slots),
      group_of_(slots),
      ready_(slots) {
  CHECK_EQ(slots % config.shards, 0U);
  const uint32_t each = slots / config.shards;
  for (uint32_t first = 0; first < slots; first += each) {
    const uint32_t middle = first + each / 2;
    if (each > 1) groups_.push_back({.first = first, .end = middle});
    groups_.push_back({.first = middle, .end = first + each});
  }
  for (uint32_t g = 0; g < groups_.size(); ++g)
    for (uint32_t i = groups_[g].first; i < groups_[g].end; ++i) group_of_[i] = g;
}

void LockstepBatching::Ready(uint32_t slot, uint64_t entries, SteadyTime) {
  Group& group = groups_[group_of_[slot]];
  ready_[slot] = true;
  ++group.ready;
  if (store_ != nullptr) group.round = entries == 0 ? 0 : (entries - 1) / config_.unroll_length;
}

void LockstepBatching::Rest(uint32_t slot) { ++groups_[group_of_[slot]].resting; }

Batching::Wait LockstepBatching::NextWait(uint32_t) {
  if (ran_) return {1, std::chrono::microseconds(0)};
  // a complete group waits for the learner, and not for a simulator
  const bool complete =
      std::any_of(groups_.begin(), groups_.end(), [](const Group& g) { return g.complete(); });
  return {1, complete ? kStallWait : kIdleWait};
}

uint64_t LockstepBatching::VersionOf(uint64_t round) const {
  if (round < config_.lag || config_.unrolls_per_update == 0) return 0;
  return (round - config_.lag) * slots_ / config_.unrolls_per_update;
}

// Whether the policy is there that plays the group's round, and room for what it will do.
bool LockstepBatching::MayRun(const Group& group, uint64_t version) {
  if (store_ == nullptr) return true;
  if (!model_.Has(version)) return false;
  for (uint32_t i = group.first; i < group.end; ++i) {
    if (store_->Reserve(i)) continue;
    ++stalls_;
    return false;
  }
  return true;
}

bool LockstepBatching::Next(uint32_t, InferenceBatch& batch) {
  ran_ = false;
  const uint64_t park_round = park_round_;
  bool all_parked = true;
  for (size_t n = 0; n < groups_.size(); ++n) {
    const size_t g = (next_ + n) % groups_.size();
    Group& group = groups_[g];
    const bool parks = store_ != nullptr && group.round >= park_round;
    all_parked &= group.complete() && parks;
    if (!group.complete() || parks) continue;
    const uint64_t version = store_ != nullptr ? VersionOf(group.round) : InferenceBatch::kNewest;
    if (!MayRun(group, version)) continue;
    for (uint32_t i = group.first; i < group.end; ++i)
      if (ready_[i]) AddRow(i, batch);
    std::fill(ready_.begin() + group.first, ready_.begin() + group.end, false);
    batch.padded = group.end - group.first;
    batch.version = version;
    group.ready = 0;
    next_ = g + 1;
    return ran_ = true;
  }
  if (all_parked) parked_at_ = park_round;
  return false;
}

}  // namespace samara
