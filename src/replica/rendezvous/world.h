// Which ranks there are and which one this is, as the launcher says it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/status.h"

namespace samara {

// One process of a replicated program; with ranks as threads, one thread.
struct World {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among the ranks of this host
  std::string address;                 // of the host that has the store; empty when alone
  uint16_t port = 0;
  // Secret of the ranks of this launch: SAMARA_LAUNCH_SECRET, else the job's name, which keeps jobs
  // apart but is no secret, else empty.
  std::string secret;
  bool agent_store = false;  // the launcher has the store: no rank opens one (torchrun)
  uint32_t restarts = 0;     // how often the launcher has started the ranks again
  std::string launcher;  // "torchrun", "Open MPI", "MPICH", "Slurm", "Kubernetes", "samara launch",
                         // "flags" or "none"
};

// Explicit flags win over the environment; set all of rank, size, address and port, or none.
struct WorldFlags {
  std::optional<int> rank, size;
  std::string address;
  uint16_t port = 0;
};

using EnvironmentVariables = std::function<std::optional<std::string>(const std::string& name)>;
EnvironmentVariables ProcessEnvironment();

// The first launcher in the order of doc/launching.md whose variables are there. kConfig for an
// incomplete or contradictory set, naming the variable; Slurm counts inside an srun step only.
Result<World> DiscoverWorld(const EnvironmentVariables& environment, const WorldFlags& flags = {});
// "rank 1 of 4 (torchrun, 10.0.0.1:29500)": logged once.
std::string Describe(const World& world);

}  // namespace samara
