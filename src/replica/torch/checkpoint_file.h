// The file of a checkpoint: named tensors of any type, and metadata. Written by rank 0, read by
// rank 0 for all.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "replica/torch/state.h"
#include "samara/replicator.h"

namespace samara {

using Entries = std::map<std::string, torch::Tensor>;
using Metadata = std::map<std::string, std::string>;

// Contents of a file.
struct ReplicaCheckpoint {
  Entries entries;
  Metadata metadata;
  int64_t step = 0;
};

// The part of a checkpoint that one rank holds.
struct HeldEntries {
  Entries shared;  // the same on every rank that has it; a part of a sharded optimizer's is on one
  Entries own;     // each rank's own: rank 0's are saved
};
// Collective. Compares the shared entries, the step and the metadata that are no notes over the
// ranks, collects on rank 0 what it does not hold, and writes. ReplicationError 70, naming the
// ranks that differ, and 74; on both the file that was there before stays. In fast mode without
// `check_every` nothing is compared.
void WriteCheckpoint(Replicator& replicator, const std::string& path, const HeldEntries& mine,
                     const Metadata& metadata, Site site);
// ReplicationError 78, naming both, when the metadata have another value by that name.
void RefuseOther(const std::string& path, const Metadata& metadata, const std::string& name,
                 const std::string& value);
// Collective. Nullopt without a file. ReplicationError 65 for a damaged one; in exact mode 78 for
// one of another mode, seed, or number of replicas.
std::optional<ReplicaCheckpoint> ReadCheckpoint(Replicator& replicator, const std::string& path,
                                                Site site);

}  // namespace samara
