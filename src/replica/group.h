// Ranks that a launcher has started, connected: collectives, the store, and the side channel that
// wakes whoever waits for a rank that is gone.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "replica/communicator.h"
#include "replica/monitor.h"
#include "replica/store.h"
#include "replica/transport.h"
#include "replica/world.h"

namespace samara {

// How the ranks of a group reach each other.
struct RankLinks {
  std::unique_ptr<Transport> transport;
  std::shared_ptr<Store> store;  // null when alone
  std::string address;           // of this host, as the others reach it; empty: its name's
  // Makes the side channel; null: none.
  std::function<Result<std::unique_ptr<Monitor>>(Monitor::OnFailure)> monitor;
};

struct LinkOptions {
  std::string transport = "auto";  // or "shared", "gloo"
  std::string address;             // of this host, as the others reach it; empty: found out
  std::chrono::milliseconds start{600'000};    // for all ranks to come
  std::chrono::milliseconds deadline{30'000};  // of a message over Gloo
  std::chrono::milliseconds silence{1'500};    // without a sign of life: frozen
};

// Finds the others through the launcher's store, which is torch's: only programs with torch can.
// kConfig for a transport that cannot be; kUnavailable names who has not come.
Result<RankLinks> Connect(const World& world, const LinkOptions& options);

// Thread safety: Fail, failed and store from any thread, the communicator as it says.
class RankGroup {
 public:
  static Result<std::unique_ptr<RankGroup>> Make(const World& world, RankLinks links,
                                                 const CommunicatorOptions& options);
  ~RankGroup();  // leaves
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  const World& world() const { return world_; }
  int rank() const { return world_.rank; }
  int size() const { return world_.size; }
  Communicator& communicator() { return *communicator_; }
  Store& store() { return *store_; }  // REQUIRES: not alone

  // What every rank gives, in rank order, once all have come. A collective: equal `what`
  // everywhere.
  Result<std::vector<std::string>> Exchange(const std::string& what, std::string_view mine);

  // This rank gives up, and every other one with it, for this reason.
  void Fail(const Status& why);
  // Whether another rank has failed, or this one gave up; communicator().failure() says why.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  // An orderly end: this rank's silence is no failure from now on.
  void Leave();

 private:
  RankGroup(const World& world, RankLinks& links, const CommunicatorOptions& options);

  const World world_;
  const std::shared_ptr<Store> store_;
  std::atomic<bool> failed_{false};
  const std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Monitor> monitor_;
};

}  // namespace samara
