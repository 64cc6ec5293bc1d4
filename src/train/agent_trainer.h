// A run that learns: what a Trainer asks of it. Actors, inference and learner work side by side, on
// one rank or on several that learn together.
//
// agent_trainer.cc has its beginning and its end, agent_learning.cc the updates between them,
// agent_evaluation.cc the evaluations, agent_checkpoint.cc what is saved and restored,
// agent_metrics.cc what is reported of it.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <set>

#include "core/device.h"
#include "core/mutex.h"
#include "core/rng.h"
#include "play/run_episodes.h"
#include "rl/inference/batch_size.h"
#include "rl/inference/inference_server.h"
#include "rl/learner/agent.h"
#include "rl/learner/learner_loop.h"
#include "storage/agent_state.h"
#include "train/agent_interval.h"
#include "train/rank_statistics.h"
#include "train/trainer.h"
#include "train/watchdog.h"

namespace samara {

class AgentTrainer final : public Trainer {
 public:
  AgentTrainer(ExperimentConfig config, const TrainOptions& options)
      : Trainer(std::move(config), options),
        learn_(config_.learning.learn),
        slots_(sync_.PartOf(learn_.environments)) {}
  ~AgentTrainer() override {  // the fleet asks Healthy until it is gone
    server_.reset();
    setup_.fleet.reset();
  }

  Result<nlohmann::json> CheckOnly() override;

 private:
  Result<bool> ResultStands(const nlohmann::json& result) override;
  Status Build() override;
  Description Describe() const override;
  std::string KindOfDevice() override;
  Result<Restored> Restore() override;
  Status Begin() override;
  Result<std::vector<EpisodeResult>> PlayRandomPolicy(size_t episodes) override;
  Status Loop() override;
  Status SaveLast() override { return SaveCheckpoint(/*exact=*/false, OnRefusal::kFail); }
  Result<std::vector<double>> Test() override;
  nlohmann::json ResultOf(const std::vector<double>& test) const override;
  Result<Policy> Trained() const override;
  Words words() const override { return {"update", "every update is saved", "agent.mp4"}; }

  // Whether all act and then all learn, instead of both at once.
  bool TakesTurns() const { return learn_.deterministic() && learn_.lag == 0; }
  std::string CoresText() const;
  Status CheckConfig() const;
  void WarnOfEpisodes() const;
  void WarnOfBudget() const;
  bool HasTests(const nlohmann::json& result) const;
  Status ChooseDevices();
  Status CheckAgentOf(const nlohmann::json& result) const;
  SlotShare Share() const {
    return {.first = slots_.first, .all = static_cast<uint32_t>(learn_.environments)};
  }
  uint32_t Shards() const {  // of this rank
    return static_cast<uint32_t>(ShardsEach(learn_, sync_.ranks()));
  }
  AgentSetup Setup();
  Status ChooseBatchSize();
  InferenceConfig ServerConfig() const;
  void MakeServer();
  Status LearnLoop();
  Status Trouble() const;
  LearnerLoop::Unrolls NextBatch();
  bool Healthy() const { return !StopRequested() && watchdog_.healthy(); }
  void TurnWatchdog();
  bool EvaluationDue(uint64_t frames_before, uint64_t episodes_before) const;
  Status Evaluate();
  Result<std::vector<double>> PlayEvaluation();
  PlayOptions FreshEpisodes(Purpose purpose, uint64_t update, size_t episodes,
                            const EnvironmentSetup& on) const;
  Result<std::vector<EpisodeResult>> Play(Fleet& fleet, Model& model, PlayOptions play);
  Status ShareStatistics();
  void Account(const RankStatistics& statistics);
  Status Update(LearnerLoop::Unrolls batch);
  Status CheckReplay();
  Status Rollback();
  void MaybeWriteMetrics(bool last);
  nlohmann::json MetricsLine();
  // Reactions to a checkpoint that cannot be written.
  enum class OnRefusal {
    kTryLater,  // the run goes on, and tries again when the schedule says so
    kFail,  // tries again at once, for run.disk_retry_seconds, and then fails: nothing comes after
  };
  Status Save(OnRefusal on_refusal);
  Status SaveCheckpoint(bool exact, OnRefusal on_refusal);
  Result<std::set<std::string>> KeptFiles();
  Status JoinReplayParts(NamedFiles& contents);
  Status JoinRanks(NamedFiles& contents);
  Result<bool> SavePartsAhead();
  AgentState StateToSave() const;
  Status CheckSame(const NamedFiles& contents);
  Status SaveExactCheckpoint(OnRefusal on_refusal);

  // Deterministic: updates of a round.
  uint64_t PerRound() const { return static_cast<uint64_t>(learn_.environments / learn_.batch); }
  bool BudgetSpent() const {
    const bool frames =
        learn_.frames > 0 && static_cast<double>(agent_state().frames) >= learn_.frames;
    const bool updates =
        learn_.updates > 0 && agent_state().updates >= static_cast<uint64_t>(learn_.updates);
    return frames || updates || agent_state().solved || TimeSpent();
  }
  bool Stops() const { return sync_.alone() ? StopRequested() : agreed_.stop; }
  // For the thread that learns, which alone writes it.
  const AgentState& agent_state() const NO_THREAD_SAFETY_ANALYSIS { return state_; }
  Status Take(StoredCheckpoint checkpoint);
  Status RestoreState();
  RankCounters OwnCounters() const;
  RankCounters AllCounters() const {
    RankCounters all = OwnCounters();
    const MutexLock lock(mu_);
    return all += others_;
  }
  nlohmann::json Drops() const;
  ProgressState Snapshot() const;

  const LearnConfig& learn_;
  RankSync::Part slots_;
  Watchdog watchdog_{60};             // the fleet asks it from other threads
  std::atomic<bool> serving_{false};  // the inference thread runs
  Device learns_on_, infers_on_;
  std::string device_name_;  // of both
  std::unique_ptr<Agent> agent_;
  uint64_t checked_replay_ = 0;  // bytes of the replay when its memory was checked
  BatchChoice batch_;            // of inference; the curve is empty where nothing was measured
  std::unique_ptr<UnrollStore> store_;
  std::unique_ptr<InferenceServer> server_;
  std::optional<LearnerLoop> loop_;
  std::string best_weights_;  // of the agent of state_.best
  // made when the first evaluation is due
  struct {
    EnvironmentSetup setup;
    std::unique_ptr<Agent> agent;
  } evaluation_;
  struct {
    std::string hash;
    nlohmann::json drops;
    double seconds = 0;
    uint64_t respawns = 0;
  } final_;                    // what the result says of the training, taken before the final test
  RankStatistics statistics_;  // of the next update, so far
  bool rate_is_over_ = false;  // the learning rate has come to 0, and a warning was logged
  bool save_pending_ = false;  // a checkpoint was asked for, of which parts are being written
  struct Ahead {
    uint64_t bytes = 0;
    double seconds = 0;
  };
  Ahead ahead_;                 // what was written so far for the next checkpoint
  NamedFiles initial_weights_;  // what to go back to as long as there is no checkpoint; rank 0's
  // at the last line of metrics
  InferenceServer::Counters server_before_;
  uint64_t stalls_before_ = 0;
  double environment_before_ = 0;
  AgentInterval interval_;  // since the last line of metrics
  mutable Mutex mu_;        // against the live view
  AgentState state_ GUARDED_BY(mu_);
  std::optional<AgentEvaluation> last_evaluation_ GUARDED_BY(mu_);  // since the start or a resume
  RankCounters others_ GUARDED_BY(mu_);  // the other ranks', at the last update
  nlohmann::json last_metrics_ GUARDED_BY(mu_) = nlohmann::json::object();  // the last line
};

}  // namespace samara
