// The command line of small replicated programs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "samara/replicator.h"

namespace samara {

struct ProgramOptions {
  int64_t steps = 100;
  std::string out;           // folder for checkpoints; empty: none
  std::string data;          // folder of a real data set; empty: generated data
  int threads_as_ranks = 0;  // 0: the launcher's ranks
  ReplicatorOptions replication;
};

// --steps N, --mode exact|fast, --threads-as-ranks N, --out FOLDER, --data FOLDER, --help.
// Negative: go on; else the exit code (0 after --help, 64 for an option that it does not know, 78
// for a value).
int ParseProgram(int argc, char** argv, ProgramOptions& options);
// Replicate, or ReplicateThreads where threads are asked for.
int RunProgram(const ProgramOptions& options, const std::function<void(Replicator&)>& program);

}  // namespace samara
