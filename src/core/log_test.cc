// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/log.h"

#include <gtest/gtest.h>

#include <regex>
#include <sstream>
#include <thread>

#include "core/files.h"
#include "core/message.h"

namespace samara {
namespace {

class LogTest : public testing::Test {
 protected:
  LogTest() {
    SetLogSink([this](std::string_view line) { lines_.emplace_back(line); });
  }
  ~LogTest() override {
    SetLogSink({});
    SetLogLevel(LogLevel::kInfo);
  }
  std::vector<std::string> lines_;
};

TEST(EscapeControlTest, ForeignTextStaysOnItsLine) {
  using namespace std::string_literals;
  const std::pair<std::string, std::string> cases[] = {
      {"", ""},
      {"plain text, ä and 東", "plain text, ä and 東"},
      {"two\nlines\r", R"(two\x0alines\x0d)"},
      {"\x1b[31mred\x07", R"(\x1b[31mred\x07)"},
      {"a\0b\x7f"s, R"(a\x00b\x7f)"},
  };
  for (const auto& [text, escaped] : cases) EXPECT_EQ(EscapeControl(text), escaped);
}

TEST(ShortenTest, KeepsBothEndsAndSaysHowMuchIsLeftOut) {
  EXPECT_EQ(Shorten("short", 99), "short");
  EXPECT_EQ(Shorten(std::string(99, 'x'), 99), std::string(99, 'x'));
  const std::string path = "/begin" + std::string(100'000, 'x') + "/end";
  const std::string shown = Shorten(path, 99);
  EXPECT_LT(shown.size(), 130u);
  EXPECT_TRUE(shown.starts_with("/begin") && shown.ends_with("/end")) << shown;
  EXPECT_NE(shown.find("(99911 bytes more)"), std::string::npos) << shown;
}

TEST(ShortenTest, CutsNoCharacter) {
  for (size_t shift = 0; shift < 3; ++shift) {
    std::string text(shift, 'x');
    for (int i = 0; i < 100; ++i) text += "東";
    const std::string shown = Shorten(text, 99);
    const size_t left = shown.find("...("), right = shown.rfind(")...");
    ASSERT_TRUE(left != shown.npos && right != shown.npos) << shown;
    EXPECT_EQ((left - shift) % 3, 0u) << shown;
    EXPECT_EQ((shown.size() - right - 4) % 3, 0u) << shown;
  }
}

TEST(ShownTest, EscapesToo) {
  EXPECT_EQ(Shown("a\nb"), R"(a\x0ab)");
  EXPECT_LT(Shown(std::string(100'000, '\n')).size(), 500u);
}

TEST(ShownMessageTest, ALongWordIsShortened) {
  const std::string path = "/" + std::string(6000, 'x') + "/end";
  const std::string shown = ShownMessage(path + ": exists; choose another\n");
  EXPECT_LT(shown.size(), 400U);
  EXPECT_TRUE(shown.ends_with("x/end: exists; choose another\\x0a")) << shown;
  EXPECT_EQ(ShownMessage("run.seed=x:  expected a number"), "run.seed=x:  expected a number");
  EXPECT_EQ(ShownMessage("a  b "), "a  b ");
  EXPECT_EQ(ShownMessage(""), "");
}

TEST_F(LogTest, ALineIsBounded) {
  LogWarning(std::string(100'000, 'x'));
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_LT(lines_[0].size(), kMessageBytesMax + 100);
}

TEST_F(LogTest, TheSinkTakesWholeLinesFromItsLevelOn) {
  Log(LogLevel::kDebug, "hidden");
  LogInfo("plain");
  LogWarning("two\nlines");
  LogError("bad");
  SetLogLevel(LogLevel::kError);
  LogWarning("hidden");
  LogError("worse");
  EXPECT_EQ(lines_, (std::vector<std::string>{"plain", R"(samara: warning: two\x0alines)",
                                              "samara: error: bad", "samara: error: worse"}));
}

TEST_F(LogTest, WithoutASinkLinesGoToStandardError) {
  SetLogSink({});
  testing::internal::CaptureStderr();
  LogInfo("plain");
  LogError("bad");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "plain\nsamara: error: bad\n");
  EXPECT_TRUE(lines_.empty());
}

TEST_F(LogTest, ManyThreadsLoseNoLine) {
  constexpr int kThreads = 4, kLines = 500;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < kLines; ++i) LogInfo(std::to_string(t * kLines + i));
    });
  }
  for (auto& thread : threads) thread.join();
  std::vector<int> seen(kThreads * kLines);
  for (const auto& line : lines_) ++seen.at(std::stoul(line));
  EXPECT_EQ(seen, std::vector<int>(kThreads * kLines, 1));
}

TEST_F(LogTest, TheFileTakesEverythingWithTimeAndLevel) {
  const Path path = TemporaryName(Path(testing::TempDir()) / "log_test").path();
  ASSERT_TRUE(AttachLogFile(path).ok());
  Log(LogLevel::kDebug, "small");
  LogWarning("two\nlines");
  // nothing is logged to a file from here on
  EXPECT_EQ(AttachLogFile(Path("/proc/none/log.txt")).code(), Code::kIoError);
  LogInfo("not in the file");
  std::istringstream text(*ReadFile(path));
  const std::string time = R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ )";
  for (const char* line : {"debug small", R"(warning two\\x0alines)"}) {
    std::string got;
    ASSERT_TRUE(std::getline(text, got));
    EXPECT_TRUE(std::regex_match(got, std::regex(time + line))) << got;
  }
  EXPECT_EQ(text.peek(), EOF);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace samara
