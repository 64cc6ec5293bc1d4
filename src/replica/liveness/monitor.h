// The side channel of a group of ranks: who lives, who is frozen, who has given up and why. It
// carries no data of collectives, so it speaks while they hang.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/status.h"
#include "replica/rendezvous/store.h"

namespace samara {

// What a rank is doing, as the others are told when something hangs.
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
    std::chrono::milliseconds silence{1500};   // without a heartbeat: frozen
    std::chrono::milliseconds start{600'000};  // for all ranks to come
    std::string address;                       // rank 0 listens there; empty: the loopback
    std::string secret;                        // of the launch: a connection proves to know it
  };
  // Called once at most, on the monitor's thread: the first failure in the group, which every rank
  // learns in the same words ("rank 2 died", "rank 1 has been silent for 1.5 s", "rank 3 gave up:
  // ..."), with what the ranks were doing. kUnavailable, or the code that the rank gave.
  using OnFailure = std::function<void(const Status& failure)>;

  virtual ~Monitor() = default;  // without Leave before it, the others see this rank die
  // What this rank does from now on; cheap: copied into memory that the heartbeat reads.
  virtual void Report(const RankActivity& activity) = 0;
  // This rank gives up: every rank's OnFailure is called with it, this one's too. The process may
  // end when this returns: the others will hear of it.
  virtual void Fail(const Status& why) = 0;
  // On one line, what the ranks were last heard to do, those that do the same together. May ask
  // rank 0 and wait for half a second; inside OnFailure it does not.
  virtual std::string Describe() const = 0;
  // An orderly end: this rank's silence is no failure from now on, and its OnFailure is not called
  // any more. Does not block; the destructor waits for the others to have noticed, rank 0's for the
  // others to leave too, `silence` at most. Ranks that stay after rank 0 are not watched any more.
  virtual void Leave() = 0;
};

// For ranks that are processes: everybody connects to rank 0, whose address is found through the
// store. A connection that closes without Leave is a death, noticed at once; a rank that is silent
// for `silence` is frozen, unless the judge itself was not scheduled meanwhile. When rank 0 dies,
// everybody else notices. Blocks until all have come; kUnavailable names who has not.
Result<std::unique_ptr<Monitor>> MakeSocketMonitor(int rank, int size, std::shared_ptr<Store> store,
                                                   const Monitor::Options& options,
                                                   Monitor::OnFailure on_failure);

// For ranks that are threads of one process: the same promises, without heartbeats. `hub`: one for
// all of them. A rank whose monitor goes without Leave has died.
class MonitorHub;
std::shared_ptr<MonitorHub> MakeMonitorHub(int size);
std::unique_ptr<Monitor> MakeMemoryMonitor(int rank, std::shared_ptr<MonitorHub> hub,
                                           Monitor::OnFailure on_failure);

}  // namespace samara
