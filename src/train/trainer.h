// One run from configuration to result, as evolution and learning share it: folder, start state,
// random policy, steps until a budget is spent, final test, result; on one rank or on several.
//
// All ranks run the same trainer. The main rank alone has a run folder, writes and shows; the
// others begin where it begins and decide as it does (rank_sync.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/reminder.h"
#include "core/signals.h"
#include "storage/checkpoint.h"
#include "storage/metrics.h"
#include "storage/retry.h"
#include "train/rank_sync.h"
#include "train/run_session.h"
#include "train/train.h"
#include "view/progress.h"

namespace samara {

class Trainer {
 public:
  virtual ~Trainer() = default;
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // The whole run; with several ranks, of the main one.
  Result<nlohmann::json> Run();
  // Runs another rank from the main rank's start state. kTryAgain when all were stopped.
  Status Follow(StartState start);
  // Fails where Run would fail before it makes anything; one environment is started and dropped.
  // Facts about the run, for EffectiveConfig.
  virtual Result<nlohmann::json> CheckOnly() = 0;

  static constexpr char kStart[] = "start";  // the name of StartState between ranks

 protected:
  Trainer(ExperimentConfig config, const TrainOptions& options)
      : session_(std::move(config), options),
        config_(session_.config()),
        options_(options),
        sync_(options.ranks) {}

  // ---- what each kind of run says, in the order of the calls

  // Whether the result of a run that had finished stands: no budget was raised since, its test has
  // as many episodes as the configuration asks for, and what it names is there.
  virtual Result<bool> ResultStands(const nlohmann::json& result) = 0;
  // Environments and algorithm; nothing is made on disk.
  virtual Status Build() = 0;
  // Members of the run's identity.
  struct Description {
    std::string network;
    nlohmann::json network_json;
    int64_t parameters = 0;
    nlohmann::json more = nlohmann::json::object();  // other members of run.json
    RunFolder::KeptFiles kept = {};
  };
  virtual Description Describe() const = 0;
  // Names what decides the last bits of what Build made; empty: nothing does.
  virtual std::string KindOfDevice() { return ""; }
  // Main rank: the newest whole state into start_ (files, path, seconds). Returns the number of
  // steps that are done, by which lines of metrics.jsonl are kept, and such lines that the state
  // has saved.
  struct Restored {
    uint64_t step = 0;
    std::vector<nlohmann::json> lines;
  };
  virtual Result<Restored> Restore() = 0;
  // Every rank: goes on from start_.files.
  virtual Status Begin() = 0;
  // This rank's part of the episodes of the random policy. kTryAgain when stopped.
  virtual Result<std::vector<EpisodeResult>> PlayRandomPolicy(size_t episodes) = 0;
  // Every rank: steps until a budget is spent.
  virtual Status Loop() = 0;
  // Every rank: what the result will speak of is on disk.
  virtual Status SaveLast() = 0;
  // Every rank: scores of fresh episodes of what was trained.
  virtual Result<std::vector<double>> Test() = 0;
  // Main rank: the members of the result that are this kind's, and what it films.
  virtual nlohmann::json ResultOf(const std::vector<double>& test) const = 0;
  virtual Result<Policy> Trained() const = 0;
  // Episodes that are awaited, as a number that changes whenever one ends; empty: none is. From any
  // thread, until the test is over.
  virtual std::optional<uint64_t> AwaitedOver() const {
    return awaits_ ? std::optional(over_.load()) : std::nullopt;
  }
  // Words of this kind of run.
  struct Words {
    const char* step;   // "generation"
    const char* saved;  // "every generation is saved"
    const char* video;  // file name
  };
  virtual Words words() const = 0;

  // ---- what both use

  double Seconds() const { return seconds_before_ + SecondsSince(started_); }
  // Whether run.minutes are over, by what the ranks agreed on last.
  bool TimeSpent() const {
    const double seconds = sync_.alone() ? Seconds() : agreed_.seconds;
    return config_.run.minutes > 0 && seconds >= config_.run.minutes * 60;
  }
  // kTryAgain: `done` is over, and how to go on.
  Status Stopped(const std::string& done) const;
  // Ends the time in which a stop is noticed by what runs: one that was asked for and not noticed
  // ends the run here. Of several ranks none decides alone.
  Status EndGraceful(const std::string& done);
  bool SaveRequested() {  // asked once: a request is taken
    return TakeCheckpointRequest() || (sync_.is_main() && schedule_->Due(Seconds()));
  }
  CheckpointInfo MakeCheckpointInfo(uint64_t step) const;
  // Number of ranks of the run, or of the run for which CheckOnly stands.
  int ranks() const { return std::max(sync_.ranks(), options_.planned_ranks); }
  nlohmann::json MeanOrNull(const std::vector<double>& x) const;
  const std::vector<double>& random_returns() const { return random_returns_; }
  std::string Title(const std::string& network) const;
  // The live view of `snapshot`, as long as it lives; null where the options or the rank want none.
  std::unique_ptr<Progress> ShowLive(std::function<ProgressState()> snapshot) const;
  // Whether it draws on a terminal, above which lines of every step would only scroll away.
  bool DrawsLive() const;

  Session session_;
  const ExperimentConfig& config_;
  const TrainOptions& options_;
  RankSync sync_;
  RankSync::Requests agreed_;         // of all ranks, at the last step
  std::optional<GracefulStop> stop_;  // while episodes are played, which look at it
  StartState start_;
  EnvironmentSetup setup_;
  std::atomic<bool> awaits_{false};  // episodes, of which so many are over
  std::atomic<uint64_t> over_{0};
  // of the main rank
  std::unique_ptr<CheckpointWriter> checkpoints_;
  std::unique_ptr<MetricsWriter> metrics_;
  std::optional<CheckpointSchedule> schedule_;
  double seconds_before_ = 0;  // of earlier incarnations
  SteadyTime started_ = Now();

 private:
  Status Open();
  Status LoadFinishedResult();
  Status OpenFolder();
  Result<nlohmann::json> RunOpened();
  Status BeginRun();
  Status RandomBaseline();
  Result<nlohmann::json> Finish();

  std::optional<nlohmann::json> finished_;  // the result of a run that had finished before
  std::vector<double> random_returns_;
  std::unique_ptr<Reminder> endless_;  // the last: it looks at what is played
};

// The trainer of the configuration's kind. REQUIRES of a configuration that learns:
// HasAgents(run.algorithm).
std::unique_ptr<Trainer> MakeEvolutionTrainer(ExperimentConfig config, const TrainOptions& options);
std::unique_ptr<Trainer> MakeAgentTrainer(ExperimentConfig config, const TrainOptions& options);
std::unique_ptr<Trainer> MakeTrainer(ExperimentConfig config, const TrainOptions& options);

}  // namespace samara
