#include "evo/evaluate.h"

namespace samara {

LocalWork::LocalWork(size_t count, StopToken stop, const ResultsByIndex& known)
    : count_(count), stop_(std::move(stop)), results_(count) {
  for (const auto& [index, result] : known) {
    if (index < count) Post(index, result);
  }
}

std::optional<uint32_t> LocalWork::Claim() {
  if (stop_ && stop_()) return std::nullopt;
  const std::lock_guard lock(mu_);
  while (next_ < count_ && results_[next_].done) ++next_;
  if (next_ == count_) return std::nullopt;
  return next_++;
}

void LocalWork::Post(uint32_t index, const EpisodeResult& result) {
  const std::lock_guard lock(mu_);
  if (results_[index].done) return;
  results_[index] = result;
  results_[index].done = true;
  frames_.fetch_add(result.frames, std::memory_order_relaxed);
  posted_.fetch_add(1, std::memory_order_relaxed);
  if (sink_) sink_(index, results_[index]);
}

bool LocalWork::Finished() const {
  if (stop_ && stop_()) return true;
  // relaxed: the results are read after the threads that posted them were joined
  return posted_.load(std::memory_order_relaxed) == count_;
}

}  // namespace samara
