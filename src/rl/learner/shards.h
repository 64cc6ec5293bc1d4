// The shards of a learner: the threads that work on them, and the sum of what they bring.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/status.h"
#include "rl/learner/agent.h"

namespace samara {

// Threads that wait between the steps of the optimizer, which may be thousands a second.
class ShardThreads {
 public:
  // `asked`: learn.threads, 0 = one for each of so many shards, at most one a core. The caller's is
  // one of them; the others are started with the first Run that needs them.
  ShardThreads(int64_t asked, int64_t shards);
  ~ShardThreads();

  size_t threads() const { return threads_; }
  // Calls work(0), ..., work(count - 1), shard i on thread i % threads, and waits for all of them.
  // The first failure, by shard; an exception is one (core/resources.h). kNoResources where the
  // threads cannot be started. One thread at a time.
  Status Run(size_t count, const std::function<void(size_t shard)>& work);

 private:
  class Pool;
  const size_t threads_;
  std::unique_ptr<Pool> pool_;
};

// Shard `i`'s of items that are divided among `shards` in order.
template <typename T>
std::span<T> OfShard(std::span<T> items, size_t i, size_t shards) {
  const size_t begin = i * items.size() / shards, end = (i + 1) * items.size() / shards;
  return items.subspan(begin, end - begin);
}

// sum = the rows of all shards: by the combiner over all learners, or, where it is null, here in
// their order.
Status AddShards(GradientCombiner* combiner, std::span<const std::span<const float>> rows,
                 std::span<float> sum);

// The largest of one number of every shard, where rows are added up: each row ends with a place for
// each shard, and has its own there. REQUIRES: numbers above 0.
inline void AppendLargest(int64_t shards, int64_t shard, float number, std::vector<float>& row) {
  row.resize(row.size() + static_cast<size_t>(shards));
  row[row.size() - static_cast<size_t>(shards - shard)] = number;
}
inline float LargestOf(int64_t shards, std::span<const float> sum) {
  return std::ranges::max(sum.last(static_cast<size_t>(shards)));
}

}  // namespace samara
