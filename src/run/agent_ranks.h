// A learning run on several ranks: each has its share of the slots, with actors, an inference
// server and a learner of its own; gradients are added up, so that all hold the same parameters.
// Rank 0 also owns the run folder and the clock. Between two updates the ranks tell each other what
// they bring and what they were asked for, and all decide alike.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "replica/group/group.h"
#include "rl/learner/agent.h"
#include "config/experiment.h"
#include "run/rank_zero.h"

namespace samara {

using NamedFiles = std::map<std::string, std::string>;

// What rank 0 tells the others at the start: enough to be where it is.
struct AgentStart {
  RankZero zero;
  uint64_t incarnation = 1;
  bool random_policy = false;  // it is played first
  double seconds = 0;          // running time so far
  NamedFiles checkpoint;       // to go on from; empty: a new run
  std::string checkpoint_path;

  std::string Encode() const;
  static Result<AgentStart> Decode(std::string_view bytes);
};

// What counts up on each rank, and what waits there now; added up for metrics.
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

// What one rank's unrolls bring to an update besides gradients, and what it was asked for.
struct Harvest {
  struct Episode {
    double score = 0;
    uint32_t steps = 0;
  };
  uint64_t unrolls = 0, stale_unrolls = 0, frames = 0, steps = 0;
  std::vector<Episode> episodes;
  Lags lags;
  RankCounters counters;
  bool stop = false, save = false;
  double seconds = 0;  // running time, as this rank knows it

  // What an unroll brings, once: entry 0 was the end of the one before.
  void Add(const Unroll& unroll);
  void AddLag(const Unroll& unroll, uint64_t version);

  std::string Encode() const;
  static Result<Harvest> Decode(std::string_view bytes);
};

// One rank's view of the others; without a group it is the only one.
class AgentRanks : public GradientCombiner {
 public:
  explicit AgentRanks(RankGroup* group) : group_(group) {}  // borrowed; null: alone
  bool alone() const { return group_ == nullptr; }
  int rank() const { return alone() ? 0 : group_->rank(); }
  int size() const { return alone() ? 1 : group_->size(); }
  bool owns_run() const { return rank() == 0; }
  // Not ok once a rank is gone.
  Status failure() const;
  // All give up.
  void Fail(const Status& why);

  // This rank's part of `n` things that the ranks share: [first, end).
  struct Part {
    uint32_t first, end;
    uint32_t size() const { return end - first; }
  };
  Part PartOf(int64_t n) const;
  // kConfig when the ranks cannot share what `learn` configures.
  Status Check(const LearnConfig& learn) const;

  // The fixed tree over the shards (replica/reduce.h), whichever rank has them.
  Status Combine(std::span<const std::span<const float>> mine, std::span<float> sum) override;

  // Collectives. What every rank gives, in their order:
  Result<std::vector<std::string>> Exchange(const std::string& what, std::string_view mine);
  Result<std::vector<Harvest>> Exchange(const Harvest& mine);
  // What rank 0 gives.
  Result<std::string> FromRank0(const std::string& what, std::string_view mine);
  // kInternal unless the files, of the same names everywhere, are the same on every rank.
  Status Agree(const std::string& when, const NamedFiles& files);
  // The episodes of all ranks, each of which has played some; kTryAgain when one was stopped.
  Result<std::vector<EpisodeResult>> Gather(Result<std::vector<EpisodeResult>> mine);

 private:
  RankGroup* const group_;
};

std::string EncodeFiles(const NamedFiles& files);
Result<NamedFiles> DecodeFiles(std::string_view bytes);

}  // namespace samara
