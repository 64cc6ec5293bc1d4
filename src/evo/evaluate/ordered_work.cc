#include "evo/evaluate/ordered_work.h"

#include <cmath>

namespace samara {

OrderedWork::OrderedWork(Plan plan, StopToken stop, const ResultsByIndex& known)
    : plan_(std::move(plan)),
      stop_(std::move(stop)),
      results_(plan_.tasks),
      experiences_(plan_.tasks) {
  CHECK(plan_.window > 0);
  const MutexLock lock(mu_);
  made_.reserve(plan_.tasks);
  for (const auto& [index, result] : known) {
    if (index >= plan_.tasks) continue;
    results_[index] = result;
    results_[index].done = true;
  }
  Advance();
}

void OrderedWork::Advance() {
  while (true) {
    // all that can be made, before anything else is merged
    while (made_.size() < plan_.tasks && made_.size() < merged_ + plan_.window)
      made_.push_back(plan_.make(static_cast<uint32_t>(made_.size())));
    if (merged_ == made_.size() || !results_[merged_].done) break;
    const EpisodeResult& result = results_[merged_];
    counts_.frames += result.frames;
    counts_.best = std::fmax(counts_.best, result.fitness);
    counts_.done = merged_ + 1;
    plan_.merge(static_cast<uint32_t>(merged_), result, std::move(experiences_[merged_]));
    ++merged_;
  }
  complete_.store(merged_ == plan_.tasks, std::memory_order_relaxed);
}

std::optional<uint32_t> OrderedWork::Claim() {
  if (stop_ && stop_()) return std::nullopt;
  const MutexLock lock(mu_);
  while (claimed_ < made_.size() && results_[claimed_].done) ++claimed_;
  if (claimed_ == made_.size()) return std::nullopt;
  return static_cast<uint32_t>(claimed_++);
}

Task OrderedWork::TaskOf(uint32_t index) const {
  const MutexLock lock(mu_);
  return made_[index];
}

void OrderedWork::Post(uint32_t index, const EpisodeResult& result) {
  const MutexLock lock(mu_);
  if (results_[index].done) return;
  results_[index] = result;
  results_[index].done = true;
  Advance();
  if (sink_) sink_(index, results_[index]);
}

void OrderedWork::PostExperience(uint32_t index, SharedExperience experience) {
  const MutexLock lock(mu_);
  if (!results_[index].done) experiences_[index] = std::move(experience);
}

bool OrderedWork::Finished() const { return (stop_ && stop_()) || Complete(); }

OrderedWork::Counts OrderedWork::counts() const {
  const MutexLock lock(mu_);
  return counts_;
}

}  // namespace samara
