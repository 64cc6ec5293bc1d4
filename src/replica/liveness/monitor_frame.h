// Messages between the monitors of a group: frames of one fixed size, so that nothing a peer sends
// decides how much is read or kept.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "replica/liveness/monitor.h"

namespace samara {

using MonitorToken = std::array<uint8_t, 16>;  // of one monitor, known through the store only

enum class MonitorKind : uint16_t {
  kHello = 1,     // to rank 0, first: proof of the token, rank, number = size of the world
  kAccepted = 2,  // rank 0's reply
  kStart = 3,     // from rank 0: all ranks have joined
  kBeat = 4,      // both ways; to rank 0 with what the rank does: number, waiting, text
  kFail = 5,      // to rank 0: this rank gives up; from rank 0: the group's failure; code, text
  kLeave = 6,     // shutdown notice
  kAsk = 7,       // to rank 0: request for all ranks' activities
  kAnswer = 8,    // its reply: text
};

struct MonitorFrame {
  static constexpr uint32_t kMagic = 0x4e4d4153;  // "SAMN"
  static constexpr uint16_t kVersion = 1;
  static constexpr size_t kTextBytes = 976;

  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  MonitorKind kind = MonitorKind::kBeat;
  int32_t rank = 0;  // sender
  int32_t code = 0;
  uint64_t number = 0;
  uint32_t waiting = 0, unused = 0;
  MonitorToken token{};
  char text[kTextBytes] = {};  // up to its first zero
};
inline constexpr size_t kMonitorFrameBytes = sizeof(MonitorFrame);
static_assert(kMonitorFrameBytes == 1024 && std::is_trivially_copyable_v<MonitorFrame>);

// Nothing when these bytes are no frame of this version.
std::optional<MonitorFrame> ParseMonitorFrame(std::span<const std::byte, kMonitorFrameBytes> bytes);
// Control characters escaped, whatever was sent.
std::string FrameText(const MonitorFrame& frame);
void SetFrameText(MonitorFrame& frame, std::string_view text);  // cut to fit

MonitorFrame FailFrame(int rank, const Status& why);
// The code is one of the documented ones: kUnavailable instead of any other.
Status FrameStatus(const MonitorFrame& frame);
MonitorFrame BeatFrame(int rank, const RankActivity& activity);
RankActivity FrameActivity(const MonitorFrame& frame);

}  // namespace samara
