#include "train/rank_statistics.h"

#include <algorithm>

#include "core/bytes.h"

namespace samara {

namespace {

// Every number in one order, for writing and reading alike.
template <typename Statistics, typename F>
void EachNumber(Statistics& h, const F& f) {
  f(h.unrolls), f(h.stale_unrolls), f(h.frames), f(h.steps);
  f(h.lags), f(h.counters), f(h.requests.stop), f(h.requests.save), f(h.requests.seconds);
}

}  // namespace

RankCounters& RankCounters::operator+=(const RankCounters& other) {
  queue_unrolls += other.queue_unrolls, queue_free += other.queue_free, stalls += other.stalls;
  live_slots += other.live_slots, respawns += other.respawns;
  dropped_unrolls += other.dropped_unrolls, partial_unrolls += other.partial_unrolls;
  lost_episodes += other.lost_episodes, not_finite_rows += other.not_finite_rows;
  stale_events += other.stale_events;
  return *this;
}

void Lags::Add(uint64_t lag) {
  min = std::min(min, lag), max = std::max(max, lag);
  ++count, sum += lag;
  ++buckets[std::min<uint64_t>(lag, kBuckets - 1)];
}

Lags& Lags::operator+=(const Lags& other) {
  min = std::min(min, other.min), max = std::max(max, other.max);
  count += other.count, sum += other.sum;
  for (size_t i = 0; i < kBuckets; ++i) buckets[i] += other.buckets[i];
  return *this;
}

void RankStatistics::Add(const Unroll& unroll) {
  for (uint32_t t = unroll.overlap + 1; t < unroll.entries; ++t) {
    const EntryHeader& entry = unroll.headers[t];
    frames += entry.frames;
    ++steps;
    if (entry.episode_ended) episodes.push_back({entry.episode_return, entry.episode_steps});
  }
  ++unrolls;
}

void RankStatistics::AddLag(const Unroll& unroll, uint64_t version) {
  for (uint32_t t = unroll.overlap; t + 1 < unroll.entries; ++t) {
    lags.Add(version - unroll.headers[t].policy_version);
  }
}

std::string RankStatistics::Encode() const {
  ByteWriter out;
  EachNumber(*this, [&](const auto& x) { out.Put(x); });
  out.Put(uint64_t{episodes.size()});
  for (const Episode& episode : episodes) out.Put(episode.score).Put(episode.steps);
  return out.Take();
}

Result<RankStatistics> RankStatistics::Decode(std::string_view bytes) {
  ByteReader in(bytes);
  RankStatistics statistics;
  EachNumber(statistics, [&](auto& x) { x = in.Get<std::decay_t<decltype(x)>>(); });
  const auto episodes = in.Get<uint64_t>();
  for (uint64_t i = 0; i < episodes && in.ok(); ++i) {
    const auto score = in.Get<double>();
    statistics.episodes.push_back({score, in.Get<uint32_t>()});
  }
  if (!in.AtEnd()) return Status(Code::kInternal, "the statistics of another rank cannot be read");
  return statistics;
}

}  // namespace samara
