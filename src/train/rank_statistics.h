// Statistics that the ranks of a learning run exchange with every update, besides gradients.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "rl/trajectory/unroll_store.h"
#include "train/rank_sync.h"

namespace samara {

// Counters of each rank, and the lengths of its queues now; summed for metrics.
struct RankCounters {
  uint64_t queue_unrolls = 0, queue_free = 0, stalls = 0, live_slots = 0, respawns = 0;
  uint64_t dropped_unrolls = 0, partial_unrolls = 0, lost_episodes = 0, not_finite_rows = 0,
           stale_events = 0;
  RankCounters& operator+=(const RankCounters& other);
};

// Versions between acting and learning, of entries.
struct Lags {
  static constexpr size_t kBuckets = 16;  // of the histogram; the last one is open
  uint64_t min = ~uint64_t{0}, max = 0, count = 0, sum = 0;
  std::array<uint64_t, kBuckets> buckets = {};

  void Add(uint64_t lag);
  Lags& operator+=(const Lags& other);
  double mean() const { return static_cast<double>(sum) / static_cast<double>(count); }
};

// Statistics of one rank's unrolls of an update, and the requests that it has received.
struct RankStatistics {
  struct Episode {
    double score = 0;
    uint32_t steps = 0;
  };
  uint64_t unrolls = 0, stale_unrolls = 0, frames = 0, steps = 0;
  std::vector<Episode> episodes;
  Lags lags;
  RankCounters counters;
  RankSync::Requests requests;

  // Adds what an unroll brings, once: the entries before were in the one before.
  void Add(const Unroll& unroll);
  void AddLag(const Unroll& unroll, uint64_t version);

  std::string Encode() const;
  static Result<RankStatistics> Decode(std::string_view bytes);
};

}  // namespace samara
