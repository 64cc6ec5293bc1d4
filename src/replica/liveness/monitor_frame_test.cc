#include "replica/liveness/monitor_frame.h"

#include <gtest/gtest.h>

#include <cstring>

namespace samara::monitor_frame_test {
namespace {

std::optional<MonitorFrame> Parsed(const MonitorFrame& frame) {
  return ParseMonitorFrame(std::as_bytes(std::span(&frame, 1)).first<kMonitorFrameBytes>());
}

TEST(MonitorFrameTest, AnotherMagicVersionOrKindIsNone) {
  for (uint16_t kind = 0; kind < 300; ++kind) {
    MonitorFrame frame{.kind = static_cast<MonitorKind>(kind), .rank = 3};
    const bool known = kind >= static_cast<uint16_t>(MonitorKind::kHello) &&
                       kind <= static_cast<uint16_t>(MonitorKind::kAnswer);
    ASSERT_EQ(Parsed(frame).has_value(), known) << kind;
    if (known) {
      EXPECT_EQ(Parsed(frame)->rank, 3);
    }
  }
  MonitorFrame magic{.kind = MonitorKind::kBeat}, version = magic;
  ++magic.magic, ++version.version;
  EXPECT_FALSE(Parsed(magic).has_value());
  EXPECT_FALSE(Parsed(version).has_value());
}

TEST(MonitorFrameTest, ATextEndsWithItsFieldAndStaysOnItsLine) {
  MonitorFrame frame{.kind = MonitorKind::kFail};
  std::memset(frame.text, 'a', sizeof frame.text);
  EXPECT_EQ(FrameText(frame), std::string(sizeof frame.text, 'a'));
  SetFrameText(frame, "two\nlines");
  EXPECT_EQ(FrameText(frame), "two\\x0alines");
  SetFrameText(frame, std::string(5000, 'b'));
  EXPECT_EQ(FrameText(frame), std::string(sizeof frame.text - 1, 'b'));
}

TEST(MonitorFrameTest, ACodeThatIsNoneIsUnavailable) {
  for (int code = -1; code < 130; ++code) {
    MonitorFrame frame = FailFrame(1, {Code::kConfig, "why"});
    frame.code = code;
    const Status status = FrameStatus(frame);
    EXPECT_EQ(status.message(), "why");
    EXPECT_TRUE(static_cast<int>(status.code()) == code || status.code() == Code::kUnavailable)
        << code;
    EXPECT_FALSE(status.ok());
  }
  for (const Code code : {Code::kConfig, Code::kIoError, Code::kNotPermitted})
    EXPECT_EQ(FrameStatus(FailFrame(1, {code, "why"})).code(), code);
}

}  // namespace
}  // namespace samara::monitor_frame_test
