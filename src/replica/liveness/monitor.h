// The control channel of a group of ranks: which ranks are alive, frozen, or have given up and why.
// It carries no data of collectives, so it works while they hang.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/status.h"
#include "replica/rendezvous/store.h"

namespace samara {

// Activity of a rank, reported to the others when something hangs.
struct RankActivity {
  uint64_t sequence = 0;  // of its last collective
  bool waiting = false;   // inside it
  char what[104] = {};    // "all_reduce sum of 3 tensors at train.cc:41", cut to fit
};
RankActivity MakeActivity(uint64_t sequence, bool waiting, std::string_view what);

// Thread safety: every method may be called from any thread.
class Monitor {
 public:
  struct Options {
    std::chrono::milliseconds heartbeat{250};
    std::chrono::milliseconds heartbeat_timeout{1500};  // without a heartbeat: frozen
    std::chrono::milliseconds start{600'000};           // for all ranks to join
    std::string address;                                // rank 0 listens there; empty: the loopback
    std::string secret;  // of the launch: a connection proves that it has it
  };
  // Called at most once, on the monitor's thread: the first failure in the group, which every rank
  // receives as the same text ("rank 2 died", "rank 1 has been silent for 1.5 s", "rank 3 gave up:
  // ..."), with what the ranks were doing. kUnavailable, or the code of Fail.
  using OnFailure = std::function<void(const Status& failure)>;

  virtual ~Monitor() = default;  // without Leave before it, the others see this rank die
  // Sets what this rank does from now on; cheap: copied into memory that the heartbeat reads.
  virtual void Report(const RankActivity& activity) = 0;
  // This rank gives up: every rank's OnFailure is called with it, this one's too. When this
  // returns, the notice is sent and the process may end.
  virtual void Fail(const Status& why) = 0;
  // The ranks' last reported activities on one line, equal ones together. May ask rank 0 and wait
  // for half a second; inside OnFailure it does not.
  virtual std::string Describe() const = 0;
  // An orderly end: missing heartbeats of this rank are no failure from now on, and its OnFailure
  // is not called any more. Does not block; the destructor waits until the others have received the
  // notice, rank 0's until the others leave too, `heartbeat_timeout` at most. Ranks that stay after
  // rank 0 are not monitored any more.
  virtual void Leave() = 0;
};

// For ranks that are processes: every rank connects to rank 0, whose address is in the store. A
// connection that closes without Leave is a death, detected at once; a rank without heartbeats for
// `heartbeat_timeout` is frozen, not counting time in which the detector itself was not scheduled.
// The death of rank 0 is detected by every other rank. Blocks until all have joined; kUnavailable
// names the missing ones.
Result<std::unique_ptr<Monitor>> MakeSocketMonitor(int rank, int size,
                                                   const std::shared_ptr<Store>& store,
                                                   const Monitor::Options& options,
                                                   Monitor::OnFailure on_failure);

// For ranks that are threads of one process: the same contract, without heartbeats. `hub`: one for
// all of them. A rank whose monitor is destroyed without Leave has died.
class MonitorHub;
std::shared_ptr<MonitorHub> MakeMonitorHub(int size);
std::unique_ptr<Monitor> MakeMemoryMonitor(int rank, std::shared_ptr<MonitorHub> hub,
                                           Monitor::OnFailure on_failure);

}  // namespace samara
