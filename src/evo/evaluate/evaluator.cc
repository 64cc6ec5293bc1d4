#include "evo/evaluate/evaluator.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace samara {

std::vector<uint32_t> LongestFirst(std::span<const Task> tasks) {
  const auto length = [&](uint32_t i) {
    const double frames = tasks[i].frames_expected;
    return frames > 0 ? frames : std::numeric_limits<double>::infinity();
  };
  std::vector<uint32_t> order(tasks.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return length(a) > length(b); });
  return order;
}

size_t RowBytes(RecordKind record, const EnvironmentSpec& spec) {
  switch (record) {
    case RecordKind::kNothing:
      return 0;
    case RecordKind::kPositions:
      return static_cast<size_t>(spec.position) * sizeof(float);
    case RecordKind::kMemory:
      return static_cast<size_t>(spec.memory);
    case RecordKind::kObservations:
      return spec.observation.bytes();
  }
  return 0;
}

LocalWork::LocalWork(std::span<const Task> tasks, StopToken stop, const ResultsByIndex& known)
    : tasks_(tasks), stop_(std::move(stop)), order_(LongestFirst(tasks)), results_(tasks.size()) {
  for (const auto& [index, result] : known) {
    if (index < tasks.size()) Post(index, result);
  }
}

std::optional<uint32_t> LocalWork::Claim() {
  if (stop_ && stop_()) return std::nullopt;
  const MutexLock lock(mu_);
  while (next_ < order_.size() && results_[order_[next_]].done) ++next_;
  if (next_ == order_.size()) return std::nullopt;
  return order_[next_++];
}

void LocalWork::Post(uint32_t index, const EpisodeResult& played) {
  // outside mu_: both may take long
  EpisodeResult result = Reduced(played);
  result.done = true;
  {
    const MutexLock lock(mu_);
    if (results_[index].done) return;
    results_[index] = result;
    frames_.fetch_add(result.frames, std::memory_order_relaxed);
    posted_.fetch_add(1, std::memory_order_relaxed);
  }
  const MutexLock lock(sink_mu_);
  if (sink_) sink_(index, result);
}

void LocalWork::PostExperience(uint32_t index, SharedExperience experience) {
  const MutexLock lock(mu_);
  experiences_.resize(tasks_.size());
  experiences_[index] = std::move(experience);
}

bool LocalWork::Finished() const {
  if (stop_ && stop_()) return true;
  // relaxed: the results are read after the threads that posted them were joined
  return posted_.load(std::memory_order_relaxed) == tasks_.size();
}

}  // namespace samara
