// Sockets of ranks: making, accepting and opening connections, none of which blocks.
// Thread safety: none.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "core/status.h"

namespace samara {

// A descriptor that closes itself.
class OwnedFd {
 public:
  explicit OwnedFd(int fd = -1) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.Release()) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept;
  ~OwnedFd() { Close(); }
  int get() const { return fd_; }
  int Release();
  void Close();

 private:
  int fd_;
};

struct Endpoint {
  std::string host;  // numeric
  uint16_t port = 0;
};

struct Listener {
  OwnedFd fd;
  Endpoint endpoint;
};
// Listens at a port of `address` (name or number; empty: the loopback), 0: at a free one. kConfig
// for an address that is not this host's or that means all of its interfaces; kCannotCreate for a
// port that is taken.
Result<Listener> ListenAt(const std::string& address, uint16_t port = 0);
// The same on all interfaces; the endpoint is the loopback's.
Result<Listener> ListenEverywhere(uint16_t port);
// Whether it is an address in numbers, and not a name.
bool IsNumericAddress(const std::string& address);
// The next connection that waits; kUnavailable: none, kIoError: this process has no room for it.
Result<OwnedFd> AcceptFrom(const Listener& listener);
// kUnavailable without an answer within `timeout`.
Result<OwnedFd> ConnectTo(const Endpoint& endpoint, std::chrono::milliseconds timeout);

}  // namespace samara
