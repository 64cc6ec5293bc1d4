#include "train/rank_sync.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/bytes.h"
#include "core/log.h"
#include "core/sha256.h"
#include "evo/evaluate/finished_episodes.h"
#include "replica/collectives/agreement.h"
#include "replica/collectives/reduce.h"

namespace samara {

Status RankSync::failure() const {
  return alone() ? Status::Ok() : group_->communicator().failure();
}

void RankSync::Fail(const Status& why) {
  if (!alone()) group_->Fail(why);
}

void RankSync::BeginRun() {
  if (!alone()) run_ = fmt::format("run/{}/", group_->communicator().sequence());
}

RankSync::Part RankSync::PartOf(int64_t n) const {
  const auto edge = [&](int r) { return static_cast<uint32_t>(n * r / ranks()); };
  return {edge(rank()), edge(rank() + 1)};
}

RankSync::Requests RankSync::Requests::Join(std::span<const Requests> all) {
  Requests joined{.seconds = all[0].seconds};
  for (const Requests& one : all) joined.stop |= one.stop, joined.save |= one.save;
  return joined;
}

Result<RankSync::Requests> RankSync::Decide(const Requests& mine) {
  if (alone()) return mine;
  ByteWriter out;
  out.Put(mine.stop).Put(mine.save).Put(mine.seconds);
  ASSIGN_OR_RETURN(const auto sent, Exchange("requests", out.Take()));
  std::vector<Requests> all;
  for (const std::string& bytes : sent) {
    ByteReader in(bytes);
    Requests& one = all.emplace_back();
    one.stop = in.Get<bool>(), one.save = in.Get<bool>(), one.seconds = in.Get<double>();
    if (!in.AtEnd()) return Status(Code::kInternal, "the requests of another rank cannot be read");
  }
  return Requests::Join(all);
}

Result<std::vector<std::string>> RankSync::Exchange(const std::string& what, std::string mine) {
  if (alone()) return std::vector<std::string>{std::move(mine)};
  return group_->Exchange(what, mine);
}

Result<std::string> RankSync::FromMain(const std::string& what, std::string mine) {
  ASSIGN_OR_RETURN(std::vector<std::string> all,
                   Exchange(what, is_main() ? std::move(mine) : std::string()));
  return std::move(all[0]);
}

Status RankSync::CheckSame(const std::string& when, const NamedFiles& files) {
  if (alone()) return Status::Ok();
  for (const auto& [name, bytes] : files) {
    ASSIGN_OR_RETURN(const std::vector<std::string> all, Exchange(name, Sha256Hex(bytes)));
    RETURN_IF_ERROR(CheckAgreement(when + name, all));
  }
  return Status::Ok();
}

Result<std::vector<EpisodeResult>> RankSync::Gather(Result<std::vector<EpisodeResult>> mine) {
  if (alone()) return mine;
  const bool stopped = mine.status().code() == Code::kTryAgain;
  if (!stopped) RETURN_IF_ERROR(mine.status());
  ByteWriter out;
  out.Put(stopped).Put(stopped ? uint64_t{0} : uint64_t{mine->size()});
  FinishedEpisodes played;
  for (size_t e = 0; !stopped && e < mine->size(); ++e)
    if ((*mine)[e].done) played.results[static_cast<uint32_t>(e)] = (*mine)[e];
  out.PutBytes(played.Encode());
  ASSIGN_OR_RETURN(const std::vector<std::string> all, Exchange("episodes", out.Take()));
  std::vector<EpisodeResult> results;
  for (const std::string& bytes : all) {
    ByteReader in(bytes);
    if (in.Get<bool>()) return Status(Code::kTryAgain, "stopped");
    const auto size = in.Get<uint64_t>();
    ASSIGN_OR_RETURN(const FinishedEpisodes theirs, FinishedEpisodes::Decode(in.GetBytes()));
    if (!in.AtEnd()) return Status(Code::kInternal, "the episodes of another rank cannot be read");
    results.resize(std::max(results.size(), static_cast<size_t>(size)));
    for (const auto& [e, result] : theirs.results) results.at(e) = result;
  }
  return results;
}

Status RankSync::LinkGpus(const Device& mine) {
  if (alone()) return Status::Ok();
  ASSIGN_OR_RETURN(gpus_, group_->SumOnGpus(mine, run_ + "gpus/"));
  if (is_main())
    LogInfo(gpus_ ? "gradients go from GPU to GPU over NCCL"
                  : "gradients go through the hosts' memory");
  return Status::Ok();
}

void RankSync::UnlinkGpus() {
  if (gpus_) gpus_->Close();
  gpus_.reset();
}

Status RankSync::Combine(std::span<const std::span<const float>> mine, std::span<float> sum) {
  const auto each = static_cast<uint32_t>(mine.size());
  const uint32_t first = each * static_cast<uint32_t>(rank()),
                 leaves = each * static_cast<uint32_t>(ranks());
  const std::span<std::byte> out = std::as_writable_bytes(sum);
  if (alone()) {
    std::vector<Partial> rows;
    for (uint32_t i = 0; i < each; ++i) rows.push_back({{i, i + 1}, std::as_bytes(mine[i])});
    FoldTree(ReduceOp::kSum, ElementType::kF32, leaves, rows, out);
    return Status::Ok();
  }
  TreeFolder folder(ReduceOp::kSum, ElementType::kF32, leaves, first, first + each);
  for (const std::span<const float> row : mine) folder.Add(std::as_bytes(row));
  const std::vector<Partial> partials = folder.partials();
  return group_->communicator().AllReduce(
      {.operation = "gradients", .operand = fmt::format("float32[{}, {}]", leaves, sum.size())},
      ReduceOp::kSum, ElementType::kF32, leaves, partials, out);
}

Result<int64_t> RankSync::Add(const std::string& counter, int64_t amount) {
  ASSIGN_OR_RETURN(const int64_t sum, group_->store().Add(run_ + counter, amount));
  return sum - amount;
}

}  // namespace samara
