#include "replica/liveness/monitor_frame.h"

#include <algorithm>
#include <cstring>

#include "core/log.h"

namespace samara {

std::optional<MonitorFrame> ParseMonitorFrame(
    std::span<const std::byte, kMonitorFrameBytes> bytes) {
  MonitorFrame frame;
  std::memcpy(&frame, bytes.data(), bytes.size());
  const auto kind = static_cast<uint16_t>(frame.kind);
  const bool known = kind >= static_cast<uint16_t>(MonitorKind::kHello) &&
                     kind <= static_cast<uint16_t>(MonitorKind::kAnswer);
  if (frame.magic != MonitorFrame::kMagic || frame.version != MonitorFrame::kVersion || !known)
    return std::nullopt;
  return frame;
}

std::string FrameText(const MonitorFrame& frame) {
  return EscapeControl(std::string_view(frame.text, strnlen(frame.text, sizeof frame.text)));
}

void SetFrameText(MonitorFrame& frame, std::string_view text) {
  std::memset(frame.text, 0, sizeof frame.text);
  text.copy(frame.text, sizeof frame.text - 1);
}

MonitorFrame FailFrame(int rank, const Status& why) {
  MonitorFrame frame{.kind = MonitorKind::kFail, .rank = rank};
  frame.code = static_cast<int32_t>(why.code());
  SetFrameText(frame, why.message());
  return frame;
}

Status FrameStatus(const MonitorFrame& frame) {
  static constexpr Code kCodes[] = {Code::kUsage,    Code::kBadData, Code::kNoInput,
                                    Code::kInternal, Code::kIoError, Code::kCannotCreate,
                                    Code::kTryAgain, Code::kConfig,  Code::kNotPermitted};
  for (const Code code : kCodes)
    if (static_cast<int32_t>(code) == frame.code) return {code, FrameText(frame)};
  return {Code::kUnavailable, FrameText(frame)};
}

MonitorFrame BeatFrame(int rank, const RankActivity& activity) {
  MonitorFrame frame{.kind = MonitorKind::kBeat, .rank = rank, .number = activity.sequence};
  frame.waiting = activity.waiting ? 1 : 0;
  SetFrameText(frame, {activity.what, strnlen(activity.what, sizeof activity.what)});
  return frame;
}

RankActivity FrameActivity(const MonitorFrame& frame) {
  return MakeActivity(frame.number, frame.waiting != 0, FrameText(frame));
}

}  // namespace samara
