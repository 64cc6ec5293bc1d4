// The updates of a learning run.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/log.h"
#include "core/thread.h"
#include "run/agent_run.h"

namespace samara {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kWait{20};        // until a stop is noticed
constexpr uint64_t kSoundAgain = 100;    // updates after one that begin a new row
constexpr double kWatchdogSeconds = 60;  // without a turn of learner or inference: not healthy

}  // namespace

// What a stopped run says: `done` is over, and how to go on.
Status AgentRun::Stopped(const std::string& done) const {
  return {Code::kTryAgain, done + (ranks_.owns_run() ? "; " + session_.HowToGoOn() : "")};
}

// What comes next does not look at requests to stop: one that nobody has answered yet is answered
// here. Of several ranks none decides alone.
Status AgentRun::EndGraceful(const std::string& done) {
  stop_.reset();
  return ranks_.alone() && StopRequested() ? Stopped(done) : Status::Ok();
}

Status AgentRun::Learn() {
  if (BudgetSpent()) return Status::Ok();
  if (ranks_.owns_run() && !Deterministic() && state_.updates == 0)
    begun_with_ = agent_->Save(/*slots=*/false);
  std::optional<Progress> progress;
  if (!session_.options().quiet) progress.emplace([this] { return Snapshot(); }, stderr);
  Status served;
  Status status;
  learner_turned_ = inference_turned_ = Now();
  learning_ = serving_ = true;
  {
    ThreadGroup inference([this] { server_->Stop(); });
    RETURN_IF_ERROR(inference.Start("inference", 1, [&](size_t) {
      served = server_->Serve();
      serving_ = false;
    }));
    status = LearnLoop();
    if (!status.ok()) stop_.reset();  // what could be saved is
  }
  learning_ = false;
  if (status.ok() && !served.ok() && !BudgetSpent()) status = served;
  if (!served.ok() && status.code() == Code::kUnavailable && ranks_.failure().ok()) status = served;
  waiting_.clear();
  if (status.code() == Code::kTryAgain) return Stopped(status.message());
  return status;
}

Status AgentRun::LearnLoop() {
  while (!BudgetSpent()) {
    if (Stops()) {
      RETURN_IF_ERROR(Save(OnRefusal::kFail));
      MaybeWriteMetrics(/*last=*/true);
      if (!BudgetSpent())
        return {Code::kTryAgain, fmt::format("stopped after update {}, saved", state_.updates)};
      break;
    }
    const SteadyTime asked = Now();
    std::vector<UnrollStore::Loan> batch = NextBatch();
    {
      const std::lock_guard lock(mu_);
      now_.Waited(SecondsSince(asked));
    }
    if (batch.empty()) {
      RETURN_IF_ERROR(Trouble());
      continue;
    }
    RETURN_IF_ERROR(Update(std::move(batch)));
    MaybeWriteMetrics(/*last=*/false);
    if (ranks_.alone() ? WantsToSave() : agreed_.save) RETURN_IF_ERROR(Save(OnRefusal::kTryLater));
  }
  MaybeWriteMetrics(/*last=*/true);
  return Status::Ok();
}

// Why no unrolls will come any more.
Status AgentRun::Trouble() const {
  RETURN_IF_ERROR(ranks_.failure());
  RETURN_IF_ERROR(stage_.fleet->status());
  return serving_ ? Status::Ok() : Status(Code::kUnavailable, "inference has ended");
}

// What the unrolls of all ranks bring, in the order of their slots.
void AgentRun::Account(const Harvest& harvest) {
  const std::lock_guard lock(mu_);
  state_.frames += harvest.frames, state_.steps += harvest.steps;
  state_.stale_unrolls += harvest.stale_unrolls;
  state_.episodes += harvest.episodes.size();
  for (const Harvest::Episode& episode : harvest.episodes) {
    state_.return_sum += episode.score;
    state_.last_returns.push_back(episode.score);
    if (state_.last_returns.size() > AgentState::kLastReturns) state_.last_returns.pop_front();
  }
  now_.Add(harvest);
}

void AgentRun::TakeUnrolls(std::vector<UnrollStore::Loan> taken) {
  const auto lag_max = static_cast<uint64_t>(learn_.lag_max);
  for (UnrollStore::Loan& unroll : taken) {
    if (Deterministic()) {
      const UnrollKey key(unroll->index, unroll->slot);
      waiting_.emplace(key, std::move(unroll));
      continue;
    }
    const uint64_t lag = agent_->version() - unroll->headers[0].policy_version;
    if (lag_max > 0 && lag > lag_max) {
      harvest_.Add(*unroll);
      ++harvest_.stale_unrolls;
      continue;
    }
    waiting_.emplace(UnrollKey(arrivals_++, unroll->slot), std::move(unroll));
  }
}

// Of the loop that learns; and of the one that serves, whose times grow as it turns.
void AgentRun::NoteTurn() {
  learner_turned_ = Now();
  const InferenceServer::Counters server = server_->counters();
  const double seconds = server.wait_seconds + server.infer_seconds + server.rest_seconds;
  if (std::exchange(inference_seconds_, seconds) != seconds) inference_turned_ = Now();
}

bool AgentRun::Healthy() const {
  if (StopRequested()) return false;
  return !learning_ || (SecondsSince(learner_turned_) < kWatchdogSeconds &&
                        SecondsSince(inference_turned_) < kWatchdogSeconds);
}

// Deterministic: of each shard its part of the batch, in the order of slots, round by round.
std::vector<AgentRun::UnrollKey> AgentRun::NextUnrolls() const {
  const uint64_t round = state_.updates / PerRound(), part = state_.updates % PerRound();
  const auto each = static_cast<uint32_t>(learn_.batch / learn_.shards);
  std::vector<UnrollKey> keys;
  for (uint32_t shard = 0; shard < Shards(); ++shard) {
    const uint32_t first = shard * slots_.size() / Shards() + static_cast<uint32_t>(part) * each;
    for (uint32_t i = 0; i < each; ++i) keys.emplace_back(round, first + i);
  }
  return keys;
}

// A whole batch, or nothing after a short wait.
std::vector<UnrollStore::Loan> AgentRun::NextBatch() {
  NoteTurn();
  const size_t size = ranks_.PartOf(learn_.batch).size();
  const std::vector<UnrollKey> wanted = Deterministic() ? NextUnrolls() : std::vector<UnrollKey>();
  const auto ready = [&] {
    return waiting_.size() >= size &&
           std::ranges::all_of(wanted, [&](const auto& key) { return waiting_.contains(key); });
  };
  if (!ready()) {
    store_->WaitFor(1, kWait);
    TakeUnrolls(store_->Take(size));
    if (!ready()) return {};
  }
  std::vector<UnrollStore::Loan> batch;
  for (size_t n = 0; n < size; ++n) {
    const auto next = Deterministic() ? waiting_.find(wanted[n]) : waiting_.begin();
    batch.push_back(std::move(next->second));
    waiting_.erase(next);
  }
  return batch;
}

// Tells the other ranks what this one brings and was asked for; all take the same from it.
Status AgentRun::ShareHarvest() {
  harvest_.counters = OwnCounters();
  harvest_.seconds = Seconds();
  if (!ranks_.alone()) harvest_.stop = StopRequested(), harvest_.save = WantsToSave();
  const SteadyTime told = Now();
  ASSIGN_OR_RETURN(const std::vector<Harvest> all, ranks_.Exchange(harvest_));
  harvest_ = {};
  agreed_ = {.stop = false, .save = false, .seconds = all[0].seconds};
  RankCounters others;
  for (size_t r = 0; r < all.size(); ++r) {
    Account(all[r]);
    agreed_.stop |= all[r].stop, agreed_.save |= all[r].save;
    if (r != static_cast<size_t>(ranks_.rank())) others += all[r].counters;
  }
  const std::lock_guard lock(mu_);
  others_ = others;
  now_.Waited(SecondsSince(told));  // for the slowest rank's unrolls
  return Status::Ok();
}

Status AgentRun::Update(std::vector<UnrollStore::Loan> batch) {
  for (const auto& unroll : batch) {
    harvest_.Add(*unroll);
    harvest_.AddLag(*unroll, agent_->version());
  }
  RETURN_IF_ERROR(ShareHarvest());
  ASSIGN_OR_RETURN(const UpdateReport report,
                   agent_->Update(batch, static_cast<double>(state_.frames)));
  batch.clear();
  {
    const std::lock_guard lock(mu_);
    ++state_.updates;
    state_.skipped_updates += report.applied ? 0 : 1;
    now_.Add(report);
  }
  skipped_in_a_row_ = report.applied ? 0 : skipped_in_a_row_ + 1;
  applied_in_a_row_ = report.applied ? applied_in_a_row_ + 1 : 0;
  if (applied_in_a_row_ >= kSoundAgain) rollbacks_in_a_row_ = 0;
  if (!report.applied && ranks_.owns_run())
    LogWarning(
        fmt::format("update {}: the loss or its gradient is not finite; skipped", state_.updates));
  const OptimizerConfig& optimizer = config_.learning.optimizer;
  const bool over = report.learning_rate == 0 && optimizer.learning_rate > 0 && !BudgetSpent();
  if (over && !std::exchange(rate_is_over_, true) && ranks_.owns_run())
    LogWarning(
        fmt::format("update {}: the learning rate is 0 from here on: {} frames are beyond "
                    "optimizer.schedule_frames={:.15g}; stop the run and go on with a larger one",
                    state_.updates, state_.frames, optimizer.schedule_frames));
  return skipped_in_a_row_ >= kSkippedMax ? Rollback() : Status::Ok();
}

}  // namespace samara
