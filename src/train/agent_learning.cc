// The updates of a learning run.
#include <fmt/format.h>

#include <utility>

#include "core/log.h"
#include "core/thread.h"
#include "train/agent_trainer.h"

namespace samara {
Status AgentTrainer::Loop() {
  if (BudgetSpent()) return Status::Ok();
  if (sync_.is_main() && !learn_.deterministic() && agent_state().updates == 0)
    initial_weights_ = agent_->Save(Agent::Part::kRun);
  const auto progress = ShowLive([this] { return Snapshot(); });
  Status served;
  Status status;
  watchdog_.Start();
  serving_ = true;
  {
    ThreadGroup inference([this] { server_->Stop(); });
    RETURN_IF_ERROR(inference.Start("inference", 1, [&](size_t) {
      served = server_->Serve();
      serving_ = false;
    }));
    status = LearnLoop();
    if (!status.ok()) stop_.reset();  // what could be saved is
  }
  watchdog_.Stop();
  if (status.ok() || status.code() == Code::kTryAgain) sync_.UnlinkGpus();
  if (status.ok() && !served.ok() && !BudgetSpent()) status = served;
  if (!served.ok() && status.code() == Code::kUnavailable && sync_.failure().ok()) status = served;
  loop_->Clear();
  if (status.code() == Code::kTryAgain) return Stopped(status.message());
  return status;
}

Status AgentTrainer::LearnLoop() {
  while (!BudgetSpent()) {
    if (Stops()) {
      RETURN_IF_ERROR(Save(OnRefusal::kFail));
      MaybeWriteMetrics(/*last=*/true);
      if (!BudgetSpent())
        return {Code::kTryAgain,
                fmt::format("stopped after update {}, saved", agent_state().updates)};
      break;
    }
    const SteadyTime asked = Now();
    LearnerLoop::Unrolls batch = NextBatch();
    interval_.Waited(SecondsSince(asked));
    if (batch.empty()) {
      RETURN_IF_ERROR(Trouble());
      continue;
    }
    RETURN_IF_ERROR(Update(std::move(batch)));
    RETURN_IF_ERROR(CheckReplay());
    MaybeWriteMetrics(/*last=*/false);
    save_pending_ |= sync_.alone() ? SaveRequested() : agreed_.save;
    if (!save_pending_) continue;
    ASSIGN_OR_RETURN(save_pending_, SavePartsAhead());
    if (!save_pending_) RETURN_IF_ERROR(Save(OnRefusal::kTryLater));
  }
  MaybeWriteMetrics(/*last=*/true);
  return Status::Ok();
}

// Why no unrolls will come any more.
Status AgentTrainer::Trouble() const {
  RETURN_IF_ERROR(sync_.failure());
  RETURN_IF_ERROR(setup_.fleet->status());
  return serving_ ? Status::Ok() : Status(Code::kUnavailable, "inference has ended");
}

// Accounts for the unrolls of all ranks, in the order of their slots.
void AgentTrainer::Account(const RankStatistics& statistics) {
  interval_.Add(statistics);
  const MutexLock lock(mu_);
  state_.frames += statistics.frames, state_.steps += statistics.steps;
  state_.stale_unrolls += statistics.stale_unrolls;
  state_.episodes += statistics.episodes.size();
  for (const RankStatistics::Episode& episode : statistics.episodes) {
    state_.return_sum += episode.score;
    state_.last_returns.push_back(episode.score);
    if (state_.last_returns.size() > AgentState::kLastReturns) state_.last_returns.pop_front();
  }
}

void AgentTrainer::TurnWatchdog() {
  const InferenceServer::Counters server = server_->counters();
  watchdog_.Turn(server.wait_seconds + server.infer_seconds + server.rest_seconds);
}

LearnerLoop::Unrolls AgentTrainer::NextBatch() {
  TurnWatchdog();
  return loop_->NextBatch();
}

// Exchanges with the other ranks what this one brings and was asked for; all decide alike on it.
Status AgentTrainer::ShareStatistics() {
  statistics_.counters = OwnCounters();
  statistics_.requests.seconds = Seconds();
  const SteadyTime begin = Now();
  std::vector<RankStatistics> all;
  if (sync_.alone()) {
    all.push_back(std::move(statistics_));
  } else {
    statistics_.requests.stop = StopRequested(), statistics_.requests.save = SaveRequested();
    ASSIGN_OR_RETURN(const auto sent, sync_.Exchange("statistics", statistics_.Encode()));
    for (const std::string& bytes : sent) {
      ASSIGN_OR_RETURN(RankStatistics one, RankStatistics::Decode(bytes));
      all.push_back(std::move(one));
    }
  }
  statistics_ = {};
  RankCounters others;
  std::vector<RankSync::Requests> requests;
  for (size_t r = 0; r < all.size(); ++r) {
    Account(all[r]);
    requests.push_back(all[r].requests);
    if (r != static_cast<size_t>(sync_.rank())) others += all[r].counters;
  }
  agreed_ = RankSync::Requests::Join(requests);
  interval_.Waited(SecondsSince(begin));  // for the slowest rank's unrolls
  const MutexLock lock(mu_);
  others_ = others;
  return Status::Ok();
}

Status AgentTrainer::Update(LearnerLoop::Unrolls batch) {
  const uint64_t frames = agent_state().frames, episodes = agent_state().episodes;
  for (const auto& unroll : batch) {
    statistics_.Add(*unroll);
    statistics_.AddLag(*unroll, agent_->version());
  }
  RETURN_IF_ERROR(ShareStatistics());
  ASSIGN_OR_RETURN(const UpdateReport report,
                   loop_->Update(std::move(batch), static_cast<double>(agent_state().frames)));
  {
    const MutexLock lock(mu_);
    ++state_.updates;
    state_.skipped_updates += report.applied ? 0 : 1;
  }
  interval_.Add(report);
  if (!report.applied && sync_.is_main())
    LogWarning(fmt::format("update {}: the loss or its gradient is not finite; {}",
                           agent_state().updates,
                           report.steps > 1 ? fmt::format("ended after {} steps", report.steps - 1)
                                            : std::string("skipped")));
  const OptimizerConfig& optimizer = config_.learning.optimizer;
  const bool over = report.learning_rate == 0 && optimizer.learning_rate > 0 && !BudgetSpent();
  if (over && !std::exchange(rate_is_over_, true) && sync_.is_main())
    LogWarning(
        fmt::format("update {}: the learning rate is 0 from here on: {} frames are beyond "
                    "optimizer.schedule_frames={:.15g}; stop the run and resume with a larger one",
                    agent_state().updates, agent_state().frames, optimizer.schedule_frames));
  if (loop_->verdict() != LearnerLoop::Verdict::kGoOn) return Rollback();
  return EvaluationDue(frames, episodes) ? Evaluate() : Status::Ok();
}

}  // namespace samara
