#include "rl/replay/step_sampler.h"

#include "core/bytes.h"
#include "core/check.h"

namespace samara {

void StepSampler::Add(const Unroll& unroll, uint64_t stream) {
  const uint64_t first = replay_.Add(unroll, stream);
  for (uint32_t t = 0; t + 1 < unroll.entries; ++t) priorities_.SetNew(first + t);
}

void StepSampler::Draw(const CounterRng& rng, size_t n, int64_t shards, double share) {
  drawn_.resize(n), weights_.resize(n);
  const uint64_t size = replay_.size();
  const double all = static_cast<double>(size) * static_cast<double>(shards);
  for (size_t i = 0; i < n; ++i) {
    const Priorities::Drawn drawn = priorities_.Draw(rng, i, size, all, share);
    drawn_[i] = drawn.item, weights_[i] = drawn.weight;
  }
}

void StepSampler::SetPriorities(std::span<const float> priorities) {
  CHECK_EQ(priorities.size(), drawn_.size());
  for (size_t i = 0; i < drawn_.size(); ++i) priorities_.Set(drawn_[i], priorities[i]);
}

// Priorities that are all alike take no room.
std::string StepSampler::Save() const {
  if (priorities_.uniform()) return replay_.Save();
  return ByteWriter().PutBytes(replay_.Save()).PutBytes(priorities_.Save(replay_.size())).Take();
}

Status StepSampler::Restore(std::string_view saved, const PartSource& part) {
  if (priorities_.uniform()) return replay_.Restore(saved, part);
  ByteReader in(saved);
  const std::string_view steps = in.GetBytes(), priorities = in.GetBytes();
  if (!in.AtEnd()) return {Code::kBadData, "the saved replay is damaged"};
  RETURN_IF_ERROR(replay_.Restore(steps, part));
  return priorities_.Restore(priorities, replay_.size());
}

}  // namespace samara
