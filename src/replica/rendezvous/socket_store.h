// The store of a launch over TCP: rank 0 serves it, all ranks use it. Before anything else both
// sides prove that they know the launch's secret, so that a rank of another launch, or a stranger,
// neither reads nor changes it; whatever a connection sends before that is bounded, and nothing
// waits for it. What is sent is not encrypted.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "core/status.h"
#include "replica/rendezvous/socket.h"
#include "replica/rendezvous/store.h"

namespace samara {

// Serves a store on a thread of its own until it is destroyed.
class StoreServer {
 public:
  virtual ~StoreServer() = default;
  virtual const Endpoint& endpoint() const = 0;
};
std::unique_ptr<StoreServer> ServeStore(Listener listener, const std::string& secret);

// Tries until `timeout` while nothing answers there. kUnavailable then; kCannotCreate when the port
// is another launch's, or another program's. Every operation has a connection to itself: one that
// waits delays no other.
Result<std::shared_ptr<Store>> ConnectToStore(const Endpoint& endpoint, const std::string& secret,
                                              std::chrono::milliseconds timeout);

// The store of a launch whose ranks received `address` and `port`; it is served for as long as the
// result of rank 0 lives, at `address` itself if it is a number or localhost, else on every
// interface, since a host may have another idea of its own name. kCannotCreate when the port is
// taken.
Result<std::shared_ptr<Store>> MakeSocketStore(const Endpoint& at, bool serve,
                                               const std::string& secret,
                                               std::chrono::milliseconds timeout);

}  // namespace samara
