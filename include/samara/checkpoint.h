// Checkpoints of replicated programs: one file, written once by rank 0 and put in place by a
// rename, read at any number of ranks.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "samara/replicator.h"

namespace samara {

// Contents of a checkpoint. Modules: parameters and buffers, replica 0's. Optimizers: SGD, Adam,
// AdamW, RMSprop and Adagrad, with their state wherever it is kept, and their learning rates.
struct Checkpoint {
  std::vector<std::pair<std::string, torch::nn::Module*>> modules;
  std::vector<std::pair<std::string, WrappedOptimizer*>> optimizers;
  std::map<std::string, std::string> notes;  // the program's own, by name
};

// Collective, outside steps. `path`: a safetensors file. Before it is written the ranks compare
// what they would save: parameters, optimizer state, learning rates, counts, the step, and the
// buffers of CrossReplicaBatchNorm and SpectralNorm (other buffers and the notes are replica 0's
// own; of a sharded optimizer's state there is one copy). ReplicationError 70, which names the
// ranks that differ from the majority, or 74 when it cannot be written; what was there before is
// then still there.
void Save(Replicator& replicator, const std::string& path, const Checkpoint& checkpoint,
          Site site = std::source_location::current());
// False when there is no file. Fills modules, optimizers, notes and the replicator's step, on every
// rank; only rank 0 reads the file. ReplicationError 65 for a damaged file, or one of another
// program, and 78 in exact mode for one saved in another mode, with another number of replicas or
// another seed; nothing has changed then.
bool Load(Replicator& replicator, const std::string& path, Checkpoint& checkpoint,
          Site site = std::source_location::current());

}  // namespace samara
