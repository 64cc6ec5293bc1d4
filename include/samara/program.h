// The command line and the output of small replicated programs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "samara/checkpoint.h"
#include "samara/replicator.h"

namespace samara {

struct ProgramOptions {
  int64_t steps = 100;
  int64_t batch = 128;       // of all replicas together
  std::string out = {};      // folder for checkpoints; empty: none
  bool json = false;         // nothing on standard output but the result
  int threads_as_ranks = 0;  // 0: the launcher's ranks
  ReplicatorOptions replication = {};
};

// One more option: `--name VALUE`. `value` has the default; a number is at least 1. `kind` is what
// --help calls the value; with a bar in it, "exact|fast", it is the list of the words allowed.
struct ProgramOption {
  std::string name, kind, help;
  std::variant<std::string*, int64_t*> value;
};

// Runs `program` once a rank after reading --steps N, --batch N, --mode exact|fast,
// --threads-as-ranks N, --out FOLDER, --json, --help and the program's own options into `options`.
// Gives the exit code: 0 after --help, 64 for an option that it does not know, 78 for a value. With
// --json rank 0 tells a failure too as one JSON object: error and exit.
int RunProgram(int argc, char** argv, ProgramOptions& options,
               const std::vector<ProgramOption>& more,
               const std::function<void(Replicator&)>& program);

// With --out: goes on from the checkpoint there, if there is one, or writes it; else nothing. In
// exact mode 78 for one with another --batch. `numbers`: of the last step, by name.
using Numbers = std::vector<std::pair<std::string, torch::Tensor>>;
void Load(Replicator& replicator, const ProgramOptions& options, Checkpoint& checkpoint);
void Save(Replicator& replicator, const ProgramOptions& options, const Checkpoint& checkpoint,
          const Numbers& numbers);
// Returns whether to do another step: `more`, unless a stop was requested. A collective. With --out
// SIGTERM or SIGINT, on any rank, ends the loop on all after the same step, and Save then ends the
// program with 75: saved, start it again. A second signal ends the process at once.
bool Going(Replicator& replicator, const ProgramOptions& options, bool more,
           Site site = std::source_location::current());
// The number of that name that was saved with what was loaded, or NaN.
torch::Tensor Saved(const Checkpoint& checkpoint, const std::string& name);

void SetLearningRate(WrappedOptimizer& optimizer, double rate);  // of all its parameters

// Rank 0 prints a line after step 1, every 100 steps and the last one, unless --json forbids it.
void PrintProgress(const Replicator& replicator, const ProgramOptions& options, int64_t step,
                   const torch::Tensor& loss);
// Collective: ReplicationError 70 unless all ranks hold the same parameters. Rank 0 prints one JSON
// object as its last line: world_size, steps, loss, what is in `more`, and parameter_hash, that of
// the optimizer's parameters or, of several, SHA-256 over theirs.
void PrintResult(const Replicator& replicator, const ProgramOptions& options,
                 const torch::Tensor& loss, const std::vector<const WrappedOptimizer*>& optimizers,
                 const std::vector<std::pair<std::string, double>>& more = {},
                 Site site = std::source_location::current());

}  // namespace samara
