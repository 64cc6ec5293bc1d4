// A learning run from configuration to result: actors, inference and learner side by side, on one
// rank or on several that learn together (agent_ranks.h).
//
// agent_run.cc has its beginning and its end, agent_learning.cc the updates between them,
// agent_checkpoint.cc what is saved and taken again, agent_metrics.cc what is told of it.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "core/clock.h"
#include "rl/learner/agent.h"
#include "rl/inference/batch_size.h"
#include "rl/inference/inference_server.h"
#include "train/agent_interval.h"
#include "run/agent_ranks.h"
#include "storage/agent_state.h"
#include "storage/checkpoint.h"
#include "storage/metrics.h"
#include "play/run_episodes.h"
#include "view/progress.h"
#include "storage/retry.h"
#include "train/run_session.h"
#include "core/signals.h"
#include "train/train.h"

namespace samara {

class AgentRun {
 public:
  AgentRun(ExperimentConfig config, const TrainOptions& options)
      : session_(std::move(config), options),
        config_(session_.config()),
        learn_(config_.learning.learn),
        ranks_(options.ranks),
        slots_(ranks_.PartOf(learn_.environments)) {}

  // A whole run. With several ranks, of rank 0.
  Result<nlohmann::json> Run() {
    const Status open = Open();
    if (!open.ok() || finished_) {
      const Status told = ranks_.FromRank0(kStart, "").status();  // the others have nothing to do
      RETURN_IF_ERROR(open);
      RETURN_IF_ERROR(told);
      Session::Show(*finished_);
      return *finished_;
    }
    Result<nlohmann::json> result = RunOpened();
    const Code code = result.status().code();
    // the others may have left at once where this rank was still waiting for them
    if (code == Code::kUnavailable && !ranks_.alone() && StopRequested()) return Stopped("stopped");
    if (!result.ok() && code != Code::kTryAgain) ranks_.Fail(result.status());
    return result;
  }
  // What Run refuses of a new run before it makes anything; one slot steps.
  Status CheckOnly();
  // Of the others, from where rank 0 is.
  Status Follow(AgentStart start) {
    beginning_ = std::move(start);
    RETURN_IF_ERROR(SetTheStage());
    RETURN_IF_ERROR(Begin());
    stop_.emplace();
    RETURN_IF_ERROR(PlayRandomPolicy());
    RETURN_IF_ERROR(Learn());
    RETURN_IF_ERROR(SaveCheckpoint(/*exact=*/false, OnRefusal::kFail));
    return Test().status();
  }
  static constexpr char kStart[] = "start";  // what AgentStart is called between ranks
  // updates in a row that are not finite before the last good state is taken
  static constexpr uint64_t kSkippedMax = 5;

 private:
  Status Open() {
    RETURN_IF_ERROR(session_.Open());
    slots_ = ranks_.PartOf(learn_.environments);  // of the configuration that was found
    RETURN_IF_ERROR(RecallResult());
    if (finished_) return Status::Ok();
    RETURN_IF_ERROR(CheckConfig());
    RETURN_IF_ERROR(SetTheStage());
    RETURN_IF_ERROR(Restore());
    return session_.folder().RemoveResult();  // of a smaller budget: the run goes on
  }
  Status CheckConfig() const {
    RETURN_IF_ERROR(Check(config_.learning));
    return ranks_.Check(learn_);
  }
  Result<nlohmann::json> RunOpened() {
    RETURN_IF_ERROR(ranks_.FromRank0(kStart, beginning_.Encode()).status());
    RETURN_IF_ERROR(Begin());
    stop_.emplace();
    RETURN_IF_ERROR(PlayRandomPolicy());
    RETURN_IF_ERROR(Learn());
    return Finish();
  }
  // 1 folder and configuration
  Status RecallResult();
  Status CheckAgentOf(const nlohmann::json& result) const;
  // 2 environments, agent, store, server
  Status SetTheStage();
  Status OpenFolder();
  SlotShare Share() const {
    return {.first = slots_.first, .all = static_cast<uint32_t>(learn_.environments)};
  }
  uint32_t Shards() const {  // of this rank
    return static_cast<uint32_t>(ShardsEach(learn_, ranks_.size()));
  }
  AgentSetup Setup();
  Status ChooseBatchSize();
  InferenceConfig ServerConfig() const;
  // 3 the newest state that is whole, on every rank
  Status Restore();
  Status Begin();
  void RecallRandomPolicy();
  // 4 what a policy that knows nothing gets
  Status PlayRandomPolicy();
  // 5 updates, while actors and inference go on
  Status Learn();
  Status LearnLoop();
  Status Stopped(const std::string& done) const;
  Status EndGraceful(const std::string& done);
  Status Trouble() const;
  using UnrollKey = std::pair<uint64_t, uint32_t>;
  std::vector<UnrollKey> NextUnrolls() const;
  std::vector<UnrollStore::Loan> NextBatch();
  void NoteTurn();
  bool Healthy() const;
  void TakeUnrolls(std::vector<UnrollStore::Loan> taken);
  Status ShareHarvest();
  void Account(const Harvest& harvest);
  Status Update(std::vector<UnrollStore::Loan> batch);
  Status Rollback();
  void MaybeWriteMetrics(bool last);
  nlohmann::json MetricsLine();
  // What follows when the disk refuses a checkpoint.
  enum class OnRefusal {
    kTryLater,  // the run goes on, and tries again when the schedule says so
    kFail,  // tries again at once, for run.disk_retry_seconds, and then fails: nothing comes after
  };
  Status Save(OnRefusal on_refusal);
  Status SaveCheckpoint(bool exact, OnRefusal on_refusal);
  Status Agree(NamedFiles contents);
  Status SaveExactCheckpoint(OnRefusal on_refusal);
  // 6 test, video, result
  Result<nlohmann::json> Finish();
  Result<std::vector<double>> Test();

  bool Deterministic() const { return learn_.mode == "deterministic"; }
  // Deterministic: updates of a round.
  uint64_t PerRound() const { return static_cast<uint64_t>(learn_.environments / learn_.batch); }
  double Seconds() const { return seconds_before_ + SecondsSince(start_); }
  bool BudgetSpent() const {
    const bool frames = learn_.frames > 0 && static_cast<double>(state_.frames) >= learn_.frames;
    const bool updates =
        learn_.updates > 0 && state_.updates >= static_cast<uint64_t>(learn_.updates);
    return frames || updates || TimeSpent();
  }
  // With several ranks all decide by what they told each other last.
  bool TimeSpent() const {
    const double seconds = ranks_.alone() ? Seconds() : agreed_.seconds;
    return config_.run.minutes > 0 && seconds >= config_.run.minutes * 60;
  }
  bool Stops() const { return ranks_.alone() ? StopRequested() : agreed_.stop; }
  bool WantsToSave() {  // asked once: a request is taken
    return TakeCheckpointRequest() || (ranks_.owns_run() && schedule_->Due(Seconds()));
  }
  RankCounters OwnCounters() const;
  RankCounters AllCounters() const {
    RankCounters all = OwnCounters();
    return all += others_;
  }
  nlohmann::json Drops() const;
  ProgressState Snapshot() const;

  Session session_;
  const ExperimentConfig& config_;
  const LearnConfig& learn_;
  AgentRanks ranks_;
  std::optional<GracefulStop> stop_;  // while episodes are played, which look at it
  AgentRanks::Part slots_;
  AgentStart beginning_;
  std::optional<nlohmann::json> finished_;  // the result of a run that was finished before
  // for the health check, which asks from other threads; they outlive the stage
  std::atomic<bool> learning_{false}, serving_{false};
  std::atomic<SteadyTime> learner_turned_{SteadyTime()}, inference_turned_{SteadyTime()};
  double inference_seconds_ = 0;  // of the learner's thread: the counters' sum at the last turn
  Stage stage_;
  std::unique_ptr<Agent> agent_;
  BatchChoice batch_;  // of inference; the curve is empty where nothing was measured
  std::unique_ptr<UnrollStore> store_;
  std::unique_ptr<InferenceServer> server_;
  std::unique_ptr<CheckpointWriter> checkpoints_;
  std::unique_ptr<MetricsWriter> metrics_;
  std::optional<CheckpointSchedule> schedule_;
  SteadyTime start_ = Now();
  double seconds_before_ = 0;
  std::vector<double> random_returns_;
  // complete unrolls on their way to the learner; deterministic: by round and slot
  std::map<UnrollKey, UnrollStore::Loan> waiting_;
  uint64_t arrivals_ = 0;
  Harvest harvest_;  // of the next update, so far
  struct {
    bool stop = false, save = false;
    double seconds = 0;
  } agreed_;             // of all ranks, at the last update
  RankCounters others_;  // the other ranks', then
  // of losses that are not finite
  uint64_t skipped_in_a_row_ = 0, rollbacks_in_a_row_ = 0, applied_in_a_row_ = 0;
  bool rate_is_over_ = false;  // said that the learning rate has come to 0
  NamedFiles begun_with_;      // what to go back to as long as there is no checkpoint; rank 0's
  // at the last line of metrics
  InferenceServer::Counters server_before_;
  uint64_t stalls_before_ = 0;
  double environment_before_ = 0;
  mutable std::mutex mu_;
  // guarded by mu_ against the live view
  AgentState state_;
  AgentInterval now_;                                // since the last line of metrics
  nlohmann::json shown_ = nlohmann::json::object();  // the last line of metrics
};

}  // namespace samara
