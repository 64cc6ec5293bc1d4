// Several runs of one command, of seeds or settings, as many at once as there is room for: each is
// a process of its own that runs `samara train`, so that it can be stopped, resumed and read like
// any other.
#pragma once

#include <sys/types.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/files.h"

namespace samara {

struct PlannedRun {
  std::string name;                // in the view and in messages: "seed 3"
  std::vector<std::string> words;  // keys that are its own: "run.seed=3"
  Path folder;
  size_t setting = 0;  // runs of one differ in nothing that decides whether they can begin
};

struct RunsOptions {
  std::string title, kind;  // kind: what the runs are, "seeds"
  std::vector<PlannedRun> runs;
  Path out;                          // the folder of all
  std::vector<std::string> command;  // program, "train", preset, keys and options of every run
  // how a run with this result, which is over, goes on: "raise ga.generations=30"
  std::function<std::string(const nlohmann::json& result)> how_to_extend;
  uint32_t at_once = 0;  // 0 = one for each core
  mode_t umask = 077;    // of the processes
  bool quiet = false;    // no live view
};

// Trains all; those that had finished are not run again. Each has its share of the cores, and the
// same bits as alone. The results in the order of `runs`. When one fails the others go on, and its
// status then says which and how many are done; only those of the same setting, which would fail
// likewise, are not begun, or stopped, saved, after kUsage, kConfig or kNoInput. kTryAgain when
// stopped. SIGUSR1 and SIGUSR2 reach every run.
Result<std::vector<nlohmann::json>> TrainRuns(const RunsOptions& options);

}  // namespace samara
