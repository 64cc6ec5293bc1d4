// Ranks of one program on this host: started together, ended together, started again together.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"

namespace samara {

struct LaunchOptions {
  std::vector<std::string> program;  // and its arguments
  int ranks = 1;
  int restarts = 0;     // of all ranks, after a failure that another try may cure
  std::string address;  // passed to the ranks; empty: the loopback
  uint16_t port = 0;    // passed to the ranks; 0: a free one, another one for each try
  std::string logs;     // folder for what the ranks print; empty: standard error
  mode_t umask = 077;   // of the ranks
  std::chrono::milliseconds notice{1'000};  // for the others to notice a failure by themselves
  std::chrono::milliseconds grace{30'000};  // between SIGTERM and SIGKILL
};

struct LaunchResult {
  int exit_code = 0;     // of the rank that failed first
  int failed_rank = -1;  // none
  int restarts = 0;
};

// Blocks until all ranks have ended. Rank 0's standard output is this process's; every other line
// goes to standard error with "[rank 1] " before it, or to a file for each rank in `logs`. SIGINT,
// SIGTERM, SIGHUP and SIGUSR1/2 are forwarded meanwhile; a second one to stop kills. No process
// of a rank's group outlives it; when this process is killed, the ranks are.
// Call it from the main thread of a process without other threads (it forks). kNoInput or
// kNotPermitted for a program that cannot be started, kConfig for an address not of this host.
Result<LaunchResult> Launch(const LaunchOptions& options);

}  // namespace samara
