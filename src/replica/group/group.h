// Ranks that a launcher has started, connected: collectives, the store, and the control channel
// that ends waits for a rank that has failed.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "core/mutex.h"
#include "replica/collectives/communicator.h"
#include "replica/collectives/transport.h"
#include "replica/group/gpu_sum.h"
#include "replica/liveness/monitor.h"
#include "replica/rendezvous/store.h"
#include "replica/rendezvous/world.h"

namespace samara {

// Transport of the collectives.
struct RankRoute {
  std::unique_ptr<Transport> transport;
  std::string address;  // of this host, as the others reach it; empty: its name's
};

class RankGroup;

// How the ranks of a group reach each other, in the order in which it is done.
struct RankLinks {
  std::shared_ptr<Store> store;  // null when alone
  // Makes the control channel, once all ranks have joined; null: none.
  std::function<Result<std::unique_ptr<Monitor>>(Monitor::OnFailure)> monitor;
  // Makes the rest, over `store`, whose Get a failure of the group ends.
  std::function<Result<RankRoute>(const std::shared_ptr<Store>& store)> route;
  // Links this rank's GPU with those of the others, over a `store` of their own; null: gradients go
  // through the hosts' memory.
  std::function<Result<std::unique_ptr<GpuSum>>(RankGroup&, const std::shared_ptr<Store>& store,
                                                const Device&)>
      gpus = {};
};

struct LinkOptions {
  std::string transport = "auto";  // or "shared", "gloo"
  std::string address;             // of this host, as the others reach it; empty: found out
  std::chrono::milliseconds start{600'000};            // for all ranks to join
  std::chrono::milliseconds deadline{30'000};          // of a message over Gloo
  std::chrono::milliseconds heartbeat_timeout{1'500};  // then a rank is frozen
};

// Links over the launcher's store, which is torch's: only programs with torch can. kConfig for a
// transport that cannot be, kUnavailable without the store.
Result<RankLinks> Connect(const World& world, const LinkOptions& options);

// Thread safety: Fail, failed and store from any thread, the communicator as it says.
class RankGroup {
 public:
  // Blocks until all ranks have joined and reach each other; kUnavailable, on every rank that has
  // joined, names the ranks that are missing or have died.
  static Result<std::unique_ptr<RankGroup>> Make(const World& world, const RankLinks& links,
                                                 const CommunicatorOptions& options);
  ~RankGroup();  // leaves
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  const World& world() const { return world_; }
  int rank() const { return world_.rank; }
  int size() const { return world_.size; }
  Communicator& communicator() { return *communicator_; }
  Store& store() { return *store_; }  // REQUIRES: not alone
  // Address of this host, as the others reach it; empty: that of its name.
  const std::string& address() const { return address_; }

  // The values of all ranks, in rank order. A collective: equal `what` on every rank.
  Result<std::vector<std::string>> Exchange(const std::string& what, std::string_view mine);

  // Sums between `device` of every rank, under a `name` that no other sum of the group has; null
  // where the ranks have no GPUs, share one, or are not linked so. A collective.
  Result<std::unique_ptr<GpuSum>> SumOnGpus(const Device& device, const std::string& name);

  // This rank gives up, and every other one with it, for this reason.
  void Fail(const Status& why);
  // Whether another rank has failed, or this one gave up; communicator().failure() says why.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  // An orderly end: missing heartbeats of this rank are no failure from now on.
  void Leave();

 private:
  class PeerFailure;
  class InterruptibleStore;
  RankGroup(const World& world, std::shared_ptr<Store> store);
  Status Join(const RankLinks& links, const CommunicatorOptions& options);
  void RecordFailure(const Status& failure);     // of another rank
  std::shared_ptr<Store> Interruptible() const;  // whose waits a failure of the group ends

  const World world_;
  const std::shared_ptr<Store> store_;
  std::atomic<bool> failed_{false};
  const std::shared_ptr<PeerFailure> peer_failure_;
  Mutex mu_;
  // constant after Join; until then guarded by mu_
  std::unique_ptr<Communicator> communicator_;
  std::string address_;
  std::unique_ptr<Monitor> monitor_;
  decltype(RankLinks::gpus) gpus_;
};

}  // namespace samara
