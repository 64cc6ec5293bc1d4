// The ranks' store, torch's own where the launcher has one, and c10d's Gloo: ranks of several
// hosts.
#pragma once

#include <memory>

#include "nn/torch/torch.h"
// after the door to torch

#include "replica/collectives/transport.h"
#include "replica/rendezvous/store.h"
#include "replica/rendezvous/world.h"

namespace samara {

// The launcher's store, which is c10d's, or the one that rank 0 serves (socket_store.h).
// kUnavailable when it is not reached in time, kCannotCreate when its port is taken.
Result<std::shared_ptr<Store>> ConnectStore(const World& world, std::chrono::milliseconds timeout);

// Rounds over c10d's Gloo: headers and small parts in one all-gather, then what is larger, so that
// Gloo never sees sizes that differ. `address`: of this host, as the
// others reach it; empty: by its name. kConfig in a build without Gloo's headers.
Result<std::unique_ptr<Transport>> MakeGlooTransport(int rank, int size,
                                                     const std::shared_ptr<Store>& store,
                                                     const std::string& address,
                                                     std::chrono::milliseconds deadline);

// c10d by itself, for comparison: float32 tensors, blocking. REQUIRES: a build with Gloo.
class BareGloo {
 public:
  virtual ~BareGloo() = default;
  virtual void AllReduce(at::Tensor data) = 0;  // the sum
  virtual void AllGather(at::Tensor mine, at::Tensor all) = 0;
  virtual void Broadcast(at::Tensor data) = 0;  // of rank 0
};
Result<std::unique_ptr<BareGloo>> MakeBareGloo(int rank, int size,
                                               const std::shared_ptr<Store>& store,
                                               const std::string& address,
                                               std::chrono::milliseconds deadline);

}  // namespace samara
