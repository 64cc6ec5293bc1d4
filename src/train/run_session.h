// The set-up of every run: its configuration, its folder, and what a resume may change.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "play/environment_setup.h"
#include "play/saved_policy.h"
#include "storage/metrics.h"
#include "storage/run_folder.h"
#include "train/train.h"

namespace samara {

// Nothing is made on disk before Create. Neither copied nor moved: the table is bound to the
// configuration.
class Session {
 public:
  Session(ExperimentConfig config, const TrainOptions& options)
      : config_(std::move(config)), options_(options), table_(config_.Table()) {}
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Opens an existing run where the options name one (its configuration replaces the given one, the
  // overrides apply to it); otherwise only looks whether a new one has room. Settles the
  // configuration; its warnings are logged once there is a folder.
  Status Open();
  // Checks what Open checks of a new run, with its warnings; an existing one is not touched.
  Status CheckNew();
  // A new run's folder; nothing when there is one. `network`: what of it belongs to the run's
  // identity; `more`: other members of it.
  Status Create(const nlohmann::json& network, const EnvironmentSetup& setup,
                const nlohmann::json& more = nlohmann::json::object(),
                const RunFolder::KeptFiles& kept = {});
  // kConfig when the run was made with another version of its environment.
  Status CheckEnvironment(const EnvironmentSetup& setup) const;
  // Build, machine, run and the preset's rows into the log.
  void LogHeader(const std::string& network_name, int64_t parameters,
                 const EnvironmentSetup& setup) const;

  // The result of a finished run, with paths in the folder's present place; nothing when there is
  // none (a damaged one is quarantined).
  Result<std::optional<nlohmann::json>> ReadResult() const;

  const ExperimentConfig& config() const { return config_; }
  const ConfigTable& table() const { return table_; }
  const TrainOptions& options() const { return options_; }
  RunFolder& folder() const { return *folder_; }
  bool resumed() const { return resumed_; }
  // Changes that this resume makes to the configuration, as "key=value".
  const std::vector<std::string>& changes() const { return changes_; }
  // Writes them into the folder. Call once nothing stands in the way of going on.
  Status RecordChanges();
  // Calls `write` until what the run's end relies on is on disk: while that fails with kIoError,
  // for run.disk_retry_seconds or until a stop is requested. The failure says what is `missing`
  // ("the result is not saved") and how to go on.
  Status MakeDurable(const std::string& missing, const std::function<Status()>& write) const;
  // The end of a run: adds to `result` one filmed episode of `policy` (in videos/VIDEO, when the
  // configuration wants it), the learning curve and the report, writes the last line of metrics,
  // makes the result durable and shows it. REQUIRES: the state that the result speaks of is
  // durable. Pictures, report and metrics are for people: what fails of them is a warning.
  Result<nlohmann::json> Finish(nlohmann::json result, MetricsWriter& metrics,
                                const Result<Policy>& policy, const std::string& video) const;
  // The result, then what to do next.
  void Show(const nlohmann::json& result) const;

  // "continue with 'samara train --resume FOLDER'"
  std::string HowToGoOn() const;

 private:
  std::string NextSteps(const nlohmann::json& result) const;
  Status OpenExisting(const Path& path);
  Status CheckRoom() const;
  bool GoesOn() const;
  Status AttachLog() const;
  Status ApplyOverridesOnResume();

  ExperimentConfig config_;
  const TrainOptions& options_;
  ConfigTable table_;
  std::vector<std::string> warnings_;  // about a new run
  bool resumed_ = false;
  std::vector<std::string> changes_;
  std::unique_ptr<RunFolder> folder_;
};

// The budgets that are set, which a resume may raise, as "key=value".
std::vector<std::string> Budgets(const ExperimentConfig& config);
// The same with twice the values, and with the schedule of the learning rate where it would be
// over.
std::vector<std::string> RaisedBudgets(const ExperimentConfig& config);
// "watch    samara play RUN", a line; empty where the run's environment has no pictures, as far as
// that is known.
std::string HowToWatch(const ExperimentConfig& config, const nlohmann::json& result,
                       const Path& run);
// The key, with its value, that lets a run with this result go on where a score ended it; empty:
// its budget did.
std::string EndedByScore(const ExperimentConfig& config, const nlohmann::json& result);
// How a run with this result, which is over, goes on: "raise ga.generations=30 or run.minutes=5",
// or "set run.stop_at=none" where a score ended it.
std::string HowToExtend(const ExperimentConfig& config, const nlohmann::json& result);
// Message of a run that has nothing left to do; how it would go on follows.
inline constexpr std::string_view kFinishedBefore = "finished before, nothing is left to do; ";
// Prints the end of a run, or of several, on stderr: rows of a summary, then commands to go on by.
void ShowEnd(const std::string& summary, const std::string& next_steps);

}  // namespace samara
