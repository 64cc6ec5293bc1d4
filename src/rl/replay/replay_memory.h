// Memory that a learner's replay needs, in bytes.
#pragma once

#include <algorithm>
#include <cstdint>

namespace samara {

struct ReplayMemory {
  uint64_t most = 0;    // when full, as if nothing could be compressed; 0: there is no replay
  uint64_t least = 0;   // when full, if what is compressed took nothing
  uint64_t stored = 0;  // of what is there
  double filled = 0;    // share of the replay that is there

  // Counts a shard's replay, one of `shards`.
  template <typename Replay>
  void Add(const Replay& replay, int64_t shards) {
    stored += replay.stored_bytes();
    filled += replay.filled() / static_cast<double>(shards);
  }
  bool compressed() const { return least < most; }
  // Need of a full replay besides what is there, if what is to come is compressed as well.
  uint64_t Missing() const {
    const bool guess = compressed() && filled > 0;
    const double full = guess ? std::clamp(static_cast<double>(stored) / filled,
                                           static_cast<double>(least), static_cast<double>(most))
                              : static_cast<double>(most);
    return static_cast<uint64_t>(full * (1 - filled));
  }
};

}  // namespace samara
