// Options of a replicator: as given, from the environment, or by default.
#pragma once

#include <optional>
#include <string>

#include "replica/rendezvous/world.h"
#include "samara/replicator.h"

namespace samara {

std::optional<std::string> FromEnv(const char* name);
// SAMARA_THREADS: ranks as threads of this process. ReplicationError 78 unless 1 to 1024.
std::optional<int> ThreadsFromEnv();
// Fills every option that is not set from the environment, else with its default. ReplicationError
// 78 on a value out of range.
ReplicatorOptions Resolve(ReplicatorOptions options, const World& world);

}  // namespace samara
