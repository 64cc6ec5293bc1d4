#include "replica/liveness/frame_socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

namespace samara {

std::optional<MonitorFrame> FrameSocket::Receive() {
  if (closed_ || broken_) return std::nullopt;
  while (received_ < in_.size()) {
    const ssize_t n =
        ::recv(fd_.get(), in_.data() + received_, in_.size() - received_, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
    if (n <= 0) {
      closed_ = true;
      return std::nullopt;
    }
    received_ += static_cast<size_t>(n);
  }
  received_ = 0;
  const auto frame = ParseMonitorFrame(in_);
  broken_ = !frame.has_value();
  return frame;
}

void FrameSocket::Put(const MonitorFrame& frame) {
  if (out_.size() < kFramesMax) out_.push_back(frame);
}

void FrameSocket::Flush() {
  while (!out_.empty()) {
    const char* bytes = reinterpret_cast<const char*>(&out_.front());
    const ssize_t n =
        ::send(fd_.get(), bytes + sent_, sizeof(MonitorFrame) - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0) {
      // gone: what it sent before is still to be received
      out_.clear();
      sent_ = 0;
      return;
    }
    sent_ += static_cast<size_t>(n);
    if (sent_ < sizeof(MonitorFrame)) continue;
    out_.pop_front();
    sent_ = 0;
  }
}

short FrameSocket::poll_events() const {
  return static_cast<short>(POLLIN | (out_.empty() ? 0 : POLLOUT));
}

}  // namespace samara
