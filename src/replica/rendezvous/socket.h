// One connection between two monitors, never blocking, and what is needed to make one.
// Thread safety: none.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>

#include "core/status.h"
#include "replica/liveness/monitor_frame.h"

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

class FrameSocket {
 public:
  explicit FrameSocket(OwnedFd fd) : fd_(std::move(fd)) {}

  // The next whole frame that has come; none: nothing yet, or see closed() and broken().
  std::optional<MonitorFrame> Receive();
  // The peer has closed and all it sent was received.
  bool closed() const { return closed_; }
  // The peer sent what is no frame: nothing more is received.
  bool broken() const { return broken_; }

  void Put(const MonitorFrame& frame);  // dropped beyond kFramesMax: the peer does not read
  void Flush();  // what the kernel takes; a peer that is gone shows as closed()
  bool flushed() const { return out_.empty(); }
  short poll_events() const;
  int fd() const { return fd_.get(); }

 private:
  static constexpr size_t kFramesMax = 16;
  OwnedFd fd_;
  bool closed_ = false, broken_ = false;
  std::array<std::byte, kMonitorFrameBytes> in_;
  size_t received_ = 0;  // bytes of in_
  std::deque<MonitorFrame> out_;
  size_t sent_ = 0;  // bytes of out_.front()
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
// kUnavailable when nobody answers within `timeout`.
Result<OwnedFd> ConnectTo(const Endpoint& endpoint, std::chrono::milliseconds timeout);

}  // namespace samara
