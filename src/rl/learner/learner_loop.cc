#include "rl/learner/learner_loop.h"

#include <algorithm>

namespace samara {
namespace {

constexpr std::chrono::milliseconds kWait{20};  // until a stop is noticed

}  // namespace

LearnerLoop::LearnerLoop(const LearnConfig& learn, const LearnerShare& share, UnrollStore& store,
                         Agent& agent, std::function<void(const Unroll&)> stale)
    : learn_(learn), share_(share), store_(store), agent_(agent), stale_(std::move(stale)) {}

void LearnerLoop::Take(Unrolls taken) {
  const auto lag_max = static_cast<uint64_t>(learn_.lag_max);
  for (UnrollStore::Loan& unroll : taken) {
    if (learn_.deterministic()) {
      const Key key(unroll->index, unroll->slot);
      waiting_.emplace(key, std::move(unroll));
      continue;
    }
    const uint64_t lag = agent_.version() - unroll->headers[unroll->overlap].policy_version;
    if (lag_max > 0 && lag > lag_max)
      stale_(*unroll);
    else
      waiting_.emplace(Key(arrivals_++, unroll->slot), std::move(unroll));
  }
}

// Deterministic: of each shard its part of the batch, in the order of slots.
std::vector<LearnerLoop::Key> LearnerLoop::NextRound() const {
  const auto per_round = static_cast<uint64_t>(learn_.environments / learn_.batch);
  const uint64_t round = agent_.version() / per_round, part = agent_.version() % per_round;
  const auto each = static_cast<uint32_t>(learn_.batch / learn_.shards);
  std::vector<Key> keys;
  for (uint32_t shard = 0; shard < share_.shards; ++shard) {
    const uint32_t first =
        shard * share_.slots / share_.shards + static_cast<uint32_t>(part) * each;
    for (uint32_t i = 0; i < each; ++i) keys.emplace_back(round, first + i);
  }
  return keys;
}

LearnerLoop::Unrolls LearnerLoop::NextBatch() {
  const std::vector<Key> wanted = learn_.deterministic() ? NextRound() : std::vector<Key>();
  const auto ready = [&] {
    return waiting_.size() >= share_.batch &&
           std::ranges::all_of(wanted, [&](const Key& key) { return waiting_.contains(key); });
  };
  if (!ready()) {
    store_.WaitFor(1, kWait);
    Take(store_.Take(share_.batch));
    if (!ready()) return {};
  }
  Unrolls batch;
  for (size_t n = 0; n < share_.batch; ++n) {
    const auto next = learn_.deterministic() ? waiting_.find(wanted[n]) : waiting_.begin();
    batch.push_back(std::move(next->second));
    waiting_.erase(next);
  }
  return batch;
}

Result<UpdateReport> LearnerLoop::Update(Unrolls batch, double frames) {
  ASSIGN_OR_RETURN(UpdateReport report, agent_.Update(batch, frames));
  verdict_ = Verdict::kGoOn;
  if (report.applied && report.steps == 0) return report;  // nothing was due
  skipped_in_a_row_ = report.applied ? 0 : skipped_in_a_row_ + 1;
  applied_in_a_row_ = report.applied ? applied_in_a_row_ + 1 : 0;
  if (applied_in_a_row_ >= kSoundAgain) rollbacks_in_a_row_ = 0;
  if (skipped_in_a_row_ >= kSkippedMax) {
    skipped_in_a_row_ = 0;
    verdict_ = ++rollbacks_in_a_row_ > kRollbacksMax ? Verdict::kGiveUp : Verdict::kRollBack;
  }
  return report;
}

}  // namespace samara
