// Replicate and ReplicateThreads, for programs that report failures themselves.
#pragma once

#include <functional>
#include <string>

#include "samara/replicator.h"

namespace samara {

// Asked to stop, and all is saved: thrown on every rank after the same collective.
struct Stopped : ReplicationError {
  explicit Stopped(const std::string& message) : ReplicationError(75, message) {}
};

// Called on rank 0 after a failure, or where the rank is not known.
using Failed = std::function<void(int exit_code, const std::string& why)>;
int Replicate(const std::function<void(Replicator&)>& program, const ReplicatorOptions& options,
              const Failed& failed);
int ReplicateThreads(int ranks, const std::function<void(Replicator&)>& program,
                     const ReplicatorOptions& options, const Failed& failed);

}  // namespace samara
