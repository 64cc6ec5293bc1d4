// One connection between two monitors, which never blocks.
// Thread safety: none.
#pragma once

#include <array>
#include <deque>
#include <optional>
#include <utility>

#include "replica/liveness/monitor_frame.h"
#include "replica/rendezvous/socket.h"

namespace samara {

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

}  // namespace samara
