// One run from configuration to result: run folder, resume, generations or updates, final test.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/files.h"
#include "play/environment_setup.h"
#include "replica/group/group.h"

namespace samara {

struct TrainOptions {
  std::optional<Path> out;     // empty: runs/<name>-N
  std::optional<Path> resume;  // an existing run folder; the configuration then comes from it
  bool resume_auto = false;    // `out`, if it holds a run, must have the same configuration hash
  std::vector<std::string> command;  // for the record
  std::vector<std::string> overrides;
  bool quiet = false;           // no live view
  bool progress_lines = false;  // the live view as JSON lines on standard output (view/progress.h)
  bool trust = false;           // a resumed run is trusted even if other users may change it
  // Where actors on other machines may connect to a learning run; no address: nowhere.
  RemoteFleetOptions remote;
  // Ranks that share the run, this one being 0; borrowed; null: alone.
  RankGroup* ranks = nullptr;
  int planned_ranks = 1;  // of the run for which CheckTrain stands
};

// The settings of Train: the effective configuration as TOML, and its hash; of a learning run
// `found` has "module_input" (Agent::module_input).
struct EffectiveConfig {
  std::string toml, hash;
  nlohmann::json found;
};
// Fails where Train would fail before it makes anything: environment, network and algorithm are
// built as for the run, with one slot, and dropped again. Logs Train's warnings. REQUIRES of a
// configuration that learns: HasAgents(run.algorithm).
Result<EffectiveConfig> CheckTrain(ExperimentConfig config, const TrainOptions& options);

// Runs until a budget is spent. The result object of `samara train --json`, once all that it speaks
// of is on disk; kIoError when the disk refuses that. kTryAgain after SIGTERM
// or SIGINT with everything saved. With `resume`, `config` is ignored but for `overrides`.
Result<nlohmann::json> Train(ExperimentConfig config, const TrainOptions& options);
// With ranks: the whole command of a rank other than 0, which joins in every run that rank 0
// trains. The code with which rank 0's command ends.
Result<Code> FollowRuns(RankGroup& ranks);
// Ends the loop of the other ranks; called by rank 0.
void EndRuns(RankGroup& ranks, Code code);
// Applies the options to `config` before the run: of a run that is resumed, its algorithm.
void TakeAlgorithm(ExperimentConfig& config, const TrainOptions& options);

}  // namespace samara
