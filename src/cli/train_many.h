// Several runs of one `samara train`: every setting of --sweep with every seed of --seeds.
#pragma once

#include <sys/types.h>

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/train_arguments.h"
#include "config/experiment.h"
#include "core/files.h"
#include "train/runs.h"
#include "train/train.h"

namespace samara {

// One combination of values of the keys that --sweep names; without it the only one, of no words.
struct TrainSetting {
  std::vector<std::string> words;  // "ga.population=50", one for each key
  std::string name;                // "population=50"
  Path folder;                     // of its runs
  ExperimentConfig config;
};

struct TrainPlan {
  Path out;
  std::vector<int64_t> seeds;
  std::vector<TrainSetting> settings;
  std::vector<PlannedRun> runs;  // every seed of the first setting, then of the next
};

// The runs in `out` of `args`, for which args.many() holds. `configure` makes the configuration of
// a run that has these words too; where it fails its status is returned. kUsage for what does not
// go with several runs, or for a sweep that cannot be read; kCannotCreate when --out is a run.
// Warns of words that --seeds and --sweep override.
Result<TrainPlan> PlanMany(
    const TrainArguments& args, const TrainOptions& options, const Path& out,
    const std::function<Result<ExperimentConfig>(const std::vector<std::string>& more)>& configure);

// Comments with the folder of every run, which `object` has too.
std::string ListMany(const TrainArguments& args, const TrainPlan& plan, nlohmann::json& object);

// Trains all, each in a folder below plan.out, at the same time or, where ranks or remote actors
// belong to the command, one after the other; then makes one report. Runs that were finished before
// are not run again.
Status TrainMany(const TrainArguments& args, const TrainPlan& plan, const TrainOptions& options,
                 mode_t umask);

}  // namespace samara
