#include "run/agent_ranks.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/bytes.h"
#include "core/sha256.h"
#include "replica/collectives/agreement.h"
#include "replica/collectives/reduce.h"

namespace samara {

namespace {

Status Unreadable(const char* what) {
  return {Code::kInternal, fmt::format("{} of another rank cannot be read", what)};
}

// Every number in one order, for writing and reading alike.
template <typename Harvest, typename F>
void EachNumber(Harvest& h, const F& f) {
  f(h.unrolls), f(h.stale_unrolls), f(h.frames), f(h.steps);
  f(h.lags), f(h.counters), f(h.stop), f(h.save), f(h.seconds);
}

}  // namespace

// ---- what ranks say to each other

std::string EncodeFiles(const NamedFiles& files) {
  ByteWriter out;
  out.Put(uint64_t{files.size()});
  for (const auto& [name, bytes] : files) out.PutBytes(name).PutBytes(bytes);
  return out.Take();
}

Result<NamedFiles> DecodeFiles(std::string_view bytes) {
  ByteReader in(bytes);
  NamedFiles files;
  const auto count = in.Get<uint64_t>();
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    const std::string name(in.GetBytes());
    files[name] = in.GetBytes();
  }
  if (!in.AtEnd()) return Unreadable("the files");
  return files;
}

std::string AgentStart::Encode() const {
  ByteWriter out;
  zero.Put(out);
  out.Put(incarnation).Put(random_policy).Put(seconds).PutBytes(EncodeFiles(checkpoint));
  out.PutBytes(checkpoint_path);
  return out.Take();
}

Result<AgentStart> AgentStart::Decode(std::string_view bytes) {
  ByteReader in(bytes);
  AgentStart start;
  start.zero = RankZero::Get(in);
  start.incarnation = in.Get<uint64_t>();
  start.random_policy = in.Get<bool>();
  start.seconds = in.Get<double>();
  const std::string_view files = in.GetBytes();
  start.checkpoint_path = in.GetBytes();
  if (!in.AtEnd()) return Unreadable("the start");
  ASSIGN_OR_RETURN(start.checkpoint, DecodeFiles(files));
  return start;
}

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

void Harvest::Add(const Unroll& unroll) {
  for (uint32_t t = 1; t < unroll.entries; ++t) {
    const EntryHeader& entry = unroll.headers[t];
    frames += entry.frames;
    ++steps;
    if (entry.episode_ended) episodes.push_back({entry.episode_return, entry.episode_steps});
  }
  ++unrolls;
}

void Harvest::AddLag(const Unroll& unroll, uint64_t version) {
  for (uint32_t t = 0; t + 1 < unroll.entries; ++t) {
    lags.Add(version - unroll.headers[t].policy_version);
  }
}

std::string Harvest::Encode() const {
  ByteWriter out;
  EachNumber(*this, [&](const auto& x) { out.Put(x); });
  out.Put(uint64_t{episodes.size()});
  for (const Episode& episode : episodes) out.Put(episode.score).Put(episode.steps);
  return out.Take();
}

Result<Harvest> Harvest::Decode(std::string_view bytes) {
  ByteReader in(bytes);
  Harvest harvest;
  EachNumber(harvest, [&](auto& x) { x = in.Get<std::decay_t<decltype(x)>>(); });
  const auto episodes = in.Get<uint64_t>();
  for (uint64_t i = 0; i < episodes && in.ok(); ++i) {
    const auto score = in.Get<double>();
    harvest.episodes.push_back({score, in.Get<uint32_t>()});
  }
  if (!in.AtEnd()) return Unreadable("the harvest");
  return harvest;
}

// ---- who has what

AgentRanks::Part AgentRanks::PartOf(int64_t n) const {
  const auto edge = [&](int r) { return static_cast<uint32_t>(n * r / size()); };
  return {edge(rank()), edge(rank() + 1)};
}

Status AgentRanks::Check(const LearnConfig& learn) const {
  const int64_t shards = ShardsEach(learn, size()) * size();
  if (learn.mode == "deterministic" && learn.shards % size() != 0)
    return {Code::kConfig,
            fmt::format("learn.shards={} on {} ranks: ranks share whole shards in deterministic "
                        "mode; expected a multiple of {} that divides learn.batch={}, or fewer "
                        "ranks",
                        learn.shards, size(), size(), learn.batch)};
  if (learn.environments < size())
    return {Code::kConfig, fmt::format("learn.environments={} on {} ranks: expected one for each "
                                       "rank at least",
                                       learn.environments, size())};
  if (learn.batch < shards)
    return {Code::kConfig,
            fmt::format("learn.batch={} on {} ranks with learn.shards={}: expected at least {}",
                        learn.batch, size(), learn.shards, shards)};
  return Status::Ok();
}

// ---- collectives

Status AgentRanks::failure() const {
  return alone() ? Status::Ok() : group_->communicator().failure();
}

void AgentRanks::Fail(const Status& why) {
  if (!alone()) group_->Fail(why);
}

Status AgentRanks::Combine(std::span<const std::span<const float>> mine, std::span<float> sum) {
  const auto each = static_cast<uint32_t>(mine.size());
  const uint32_t first = each * static_cast<uint32_t>(rank()),
                 leaves = each * static_cast<uint32_t>(size());
  TreeFolder folder(ReduceOp::kSum, ElementType::kF32, leaves, first, first + each);
  for (const std::span<const float> row : mine) folder.Add(std::as_bytes(row));
  const std::vector<Partial> partials = folder.partials();
  const std::span<std::byte> out = std::as_writable_bytes(sum);
  if (alone()) {
    FoldTree(ReduceOp::kSum, ElementType::kF32, leaves, partials, out);
    return Status::Ok();
  }
  return group_->communicator().AllReduce(
      {.operation = "gradients", .operand = fmt::format("float32[{}, {}]", leaves, sum.size())},
      ReduceOp::kSum, ElementType::kF32, leaves, partials, out);
}

Result<std::vector<std::string>> AgentRanks::Exchange(const std::string& what,
                                                      std::string_view mine) {
  if (alone()) return std::vector<std::string>{std::string(mine)};
  return group_->Exchange(what, mine);
}

Result<std::vector<Harvest>> AgentRanks::Exchange(const Harvest& mine) {
  if (alone()) return std::vector<Harvest>{mine};
  ASSIGN_OR_RETURN(const std::vector<std::string> all, Exchange("harvest", mine.Encode()));
  std::vector<Harvest> harvests;
  for (const std::string& bytes : all) {
    ASSIGN_OR_RETURN(Harvest harvest, Harvest::Decode(bytes));
    harvests.push_back(std::move(harvest));
  }
  return harvests;
}

Result<std::string> AgentRanks::FromRank0(const std::string& what, std::string_view mine) {
  ASSIGN_OR_RETURN(std::vector<std::string> all,
                   Exchange(what, owns_run() ? mine : std::string_view()));
  return std::move(all[0]);
}

Status AgentRanks::Agree(const std::string& when, const NamedFiles& files) {
  if (alone()) return Status::Ok();
  for (const auto& [name, bytes] : files) {
    ASSIGN_OR_RETURN(const std::vector<std::string> all, Exchange(name, Sha256Hex(bytes)));
    RETURN_IF_ERROR(CheckAgreement(when + ": not saved, the last checkpoint stays: " + name, all));
  }
  return Status::Ok();
}

Result<std::vector<EpisodeResult>> AgentRanks::Gather(Result<std::vector<EpisodeResult>> mine) {
  if (alone()) return mine;
  const bool stopped = mine.status().code() == Code::kTryAgain;
  if (!stopped) RETURN_IF_ERROR(mine.status());
  ByteWriter out;
  out.Put(stopped);
  if (!stopped)
    for (const EpisodeResult& result : *mine) out.Put(result);
  ASSIGN_OR_RETURN(const std::vector<std::string> all, Exchange("episodes", out.Take()));
  std::vector<EpisodeResult> results;
  for (const std::string& bytes : all) {
    ByteReader in(bytes);
    if (in.Get<bool>()) return Status(Code::kTryAgain, "stopped");
    for (size_t e = 0; !in.AtEnd(); ++e) {
      const auto result = in.Get<EpisodeResult>();
      if (!in.ok()) return Unreadable("the episodes");
      if (e == results.size()) results.emplace_back();
      if (result.done) results[e] = result;
    }
  }
  return results;
}

}  // namespace samara
