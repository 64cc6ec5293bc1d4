// The policies that may still be asked for, by the number of their version.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "core/mutex.h"
#include "rl/inference/model.h"

namespace samara {

// Thread safety: any thread.
template <typename Policy>
class VersionQueue {
 public:
  using Pointer = std::shared_ptr<Policy>;
  // Keeps the newest and, of those before it, every `every`-th, `kept` in all.
  VersionQueue(uint32_t kept, uint32_t every) : kept_(kept), every_(every) {}

  // The newest version from now on. Returns those that are no longer kept.
  std::vector<Pointer> Publish(uint64_t version, Pointer policy) {
    const MutexLock lock(mu_);
    std::vector<Pointer> gone;
    // the last one is in the way when it is not requested later, or when this is another one by its
    // number: parameters of a checkpoint that were taken again
    if (!versions_.empty() &&
        (versions_.back().first == version || versions_.back().first % every_ != 0)) {
      gone.push_back(std::move(versions_.back().second));
      versions_.pop_back();
    }
    versions_.emplace_back(version, std::move(policy));
    while (versions_.size() > kept_) {
      gone.push_back(std::move(versions_.front().second));
      versions_.pop_front();
    }
    return gone;
  }
  bool Has(uint64_t version) const { return Find(version) != nullptr; }
  Pointer Find(uint64_t version) const {  // null: it is not kept
    const MutexLock lock(mu_);
    const auto found = std::ranges::find(versions_, version, &std::pair<uint64_t, Pointer>::first);
    return found == versions_.end() ? nullptr : found->second;
  }
  // The version that is wanted; of InferenceBatch::kNewest the newest one, whose number `version`
  // becomes. REQUIRES: something was published.
  Pointer Get(uint64_t& version) const {
    if (version != InferenceBatch::kNewest) return Find(version);
    const MutexLock lock(mu_);
    version = versions_.back().first;
    return versions_.back().second;
  }
  // Oldest first.
  std::vector<std::pair<uint64_t, Pointer>> all() const {
    const MutexLock lock(mu_);
    return {versions_.begin(), versions_.end()};
  }

 private:
  const uint32_t kept_, every_;
  mutable Mutex mu_;
  std::deque<std::pair<uint64_t, Pointer>> versions_ GUARDED_BY(mu_);
};

}  // namespace samara
