// The file of a checkpoint: named tensors of any type, and words. Written by rank 0, read by rank 0
// for all.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "replica/torch/state.h"
#include "samara/replicator.h"

namespace samara {

using Entries = std::map<std::string, torch::Tensor>;
using Words = std::map<std::string, std::string>;

struct CheckpointFile {
  Entries entries;
  Words words;
  int64_t step = 0;
};

// Collective: what all ranks have, on every rank; of equal names the lowest rank's.
Entries GatherEntries(Replicator& replicator, const std::string& name, const Entries& mine,
                      Site site);
// Collective. Rank 0 writes its entries and words, and the replicator's step. ReplicationError 74.
void WriteCheckpoint(Replicator& replicator, const std::string& path, const Entries& entries,
                     const Words& words, Site site);
// ReplicationError 78, naming both, when the words have another value by that name.
void RefuseOther(const std::string& path, const Words& words, const std::string& name,
                 const std::string& value);
// Collective. Nullopt without a file. ReplicationError 65 for a damaged one; in exact mode 78 for
// one of another mode, seed, or number of replicas.
std::optional<CheckpointFile> ReadCheckpoint(Replicator& replicator, const std::string& path,
                                             Site site);

}  // namespace samara
