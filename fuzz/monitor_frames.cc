// Effects of a peer's bytes on the control channel of a group of ranks: the input is what three
// ranks send, cut anywhere, and rank 0 hears it as its monitor does. It fails by crashing: a CHECK,
// a sanitizer, or a text that a terminal would obey.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "replica/liveness/failure_detector.h"
#include "replica/liveness/frame_socket.h"

namespace samara {
namespace {

constexpr int kRanks = 4;

bool Printable(const std::string& text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

void Poll(FailureDetector& detector, FrameSocket& socket, int rank, FailureDetector::Time now) {
  while (const auto frame = socket.Receive()) {
    CHECK(Printable(FrameText(*frame)));
    const Status status = FrameStatus(*frame);
    CHECK(!status.ok() && static_cast<int>(status.code()) >= 64 &&
          static_cast<int>(status.code()) <= 78);
    detector.Heartbeat(rank, now);
    detector.SetActivity(rank, FrameActivity(*frame));
    if (frame->kind == MonitorKind::kFail) detector.GiveUp(rank, status);
    if (frame->kind == MonitorKind::kLeave) detector.Leave(rank);
    MonitorFrame answer{.kind = MonitorKind::kAnswer};
    SetFrameText(answer, detector.Describe(now));
    CHECK(Printable(FrameText(answer)));
    socket.Put(answer);
    socket.Flush();
  }
  if (socket.broken()) detector.ProtocolError(rank);
  if (socket.closed()) detector.ConnectionClosed(rank);
}

// Random bytes are no frames: half of them have a frame's head put before them.
std::string Spoken(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size < 8 || data[0] % 2 != 0) return bytes;
  MonitorFrame frame;
  frame.kind = static_cast<MonitorKind>(data[1] % 10);
  bytes.resize(std::max(size, kMonitorFrameBytes), static_cast<char>(data[2]));
  std::memcpy(bytes.data(), &frame, 8);
  return bytes;
}

}  // namespace
}  // namespace samara

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace samara;
  FailureDetector detector(kRanks, std::chrono::milliseconds(1500));
  FailureDetector::Time now{0};
  for (int rank = 1; rank < kRanks; ++rank) {
    detector.Join(rank, now);
    int ends[2];
    CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    OwnedFd peer(ends[0]);
    FrameSocket socket{OwnedFd(ends[1])};
    const size_t begin = size * static_cast<size_t>(rank - 1) / (kRanks - 1),
                 end = size * static_cast<size_t>(rank) / (kRanks - 1);
    const std::string bytes = Spoken(data + begin, end - begin);
    // in two pieces
    const size_t cut = bytes.empty() ? 0 : static_cast<uint8_t>(bytes.back()) * bytes.size() / 256;
    CHECK(::write(peer.get(), bytes.data(), cut) == static_cast<ssize_t>(cut));
    Poll(detector, socket, rank, now);
    const size_t rest = bytes.size() - cut;
    CHECK(::write(peer.get(), bytes.data() + cut, rest) == static_cast<ssize_t>(rest));
    if (rank == 2) peer.Close();
    now += std::chrono::milliseconds(700);
    Poll(detector, socket, rank, now);
  }
  detector.CheckTimeouts(now);
  CHECK(Printable(detector.failure().message()) && Printable(detector.Describe(now)));
  return 0;
}
