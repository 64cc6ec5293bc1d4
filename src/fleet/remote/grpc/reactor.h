// One stream of the server: what gRPC calls of it, and what the hub holds of it.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <memory>
#include <vector>

#include "core/mutex.h"
#include "fleet/remote/gate.h"
#include "fleet/remote/hub.h"

namespace samara {

class ServerStream;

// Messages that wait for a thread of gRPC that is at work anyway. The end of a write goes to the
// thread that began it if that is one of gRPC's, and else wakes one, which costs more than the
// write. While none is at work, the thread that posts a message writes it. Thread safe.
class Outbox {
 public:
  // Held by a thread of gRPC during a callback; at its end it writes what is there.
  class AtWork {
   public:
    explicit AtWork(Outbox& outbox);
    ~AtWork();
    AtWork(const AtWork&) = delete;
    AtWork& operator=(const AtWork&) = delete;

   private:
    Outbox& outbox_;
  };
  // The stream's message is to be written.
  void Post(std::shared_ptr<ServerStream> stream);

 private:
  std::shared_ptr<ServerStream> Take() REQUIRES(mu_);  // null: none

  Mutex mu_;
  // guarded by mu_
  std::vector<std::shared_ptr<ServerStream>> streams_ GUARDED_BY(mu_);
  size_t first_ GUARDED_BY(mu_) = 0;  // of streams_ that is not written yet
  int at_work_ GUARDED_BY(mu_) = 0;   // threads
};

// A stream of an actor, over `hub`. It deletes itself. Hub, gate and outbox outlive it. The gate is
// told once the stream's Hello was accepted.
grpc::ServerGenericBidiReactor* MakeReactor(RemoteHub& hub, Gate& gate, Outbox& outbox,
                                            grpc::GenericCallbackServerContext* context);

}  // namespace samara
