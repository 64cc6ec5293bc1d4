// Sampling of a replay's items in proportion to a power of their priorities. Schaul et al. 2016
// (arXiv 1511.05952), equation 1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/rng.h"
#include "core/status.h"

namespace samara {

// Weights of items and their sums, in double precision. A sum is always that of the two below it,
// so that sums are a function of the weights, not of their history. Thread safety: none.
class SumTree {
 public:
  explicit SumTree(uint64_t items);
  uint64_t items() const { return items_; }
  double total() const { return nodes_[1]; }
  double Get(uint64_t item) const { return nodes_[leaves_ + item]; }
  void Set(uint64_t item, double weight);  // O(log items)
  // The item within whose part of [0, total) `at` lies. REQUIRES: total() > 0.
  uint64_t Find(double at) const;

 private:
  uint64_t items_, leaves_;
  std::vector<double> nodes_;  // node i above 2 i and 2 i + 1; leaves last
};

// Thread safety: none.
class Priorities {
 public:
  // `items` at most. alpha = 0: all are alike, and none is stored.
  Priorities(uint64_t items, double alpha, double beta);

  static uint64_t Bytes(uint64_t items, double alpha);
  bool uniform() const { return alpha_ == 0; }
  // Sets the priority of an item, at least 1e-6. Without one: the largest so far.
  void Set(uint64_t item, double priority);
  void SetNew(uint64_t item) { Set(item, largest_); }

  struct Drawn {
    uint64_t item;
    // (1 / (N P))^beta, not divided by the largest of the minibatch.
    float weight;
  };
  // Draw number `i` of `rng` among the first `size` items. REQUIRES: these were set. `all`: N, the
  // items of all shards; `share`: the part of a minibatch that this shard draws.
  Drawn Draw(const CounterRng& rng, uint64_t i, uint64_t size, double all, double share) const;

  // Encodes the first `size` items for a checkpoint. Restore: kBadData.
  std::string Save(uint64_t size) const;
  Status Restore(std::string_view saved, uint64_t size);

 private:
  double alpha_, beta_;
  uint64_t items_;
  double largest_ = 1;
  std::optional<SumTree> tree_;  // made with the first priority, after the memory was checked
};

}  // namespace samara
