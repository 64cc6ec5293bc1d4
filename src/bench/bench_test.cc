#include "bench/bench.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/files.h"

namespace samara::bench {
namespace {

// A source tree whose "Python" is a shell script.
class RunRivalTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(tree_ / "src" / "bench");
    std::filesystem::create_directories(tree_ / ".venv" / "bin");
    std::ofstream(tree_ / "src" / "bench" / "rival.py") << "";
    setenv("SAMARA_VENV", (tree_ / ".venv").c_str(), 1);
  }
  void TearDown() override {
    unsetenv("SAMARA_VENV");
    std::filesystem::remove_all(tree_);
  }
  void Python(const std::string& body) const {
    const Path python = tree_ / ".venv" / "bin" / "python";
    std::ofstream(python) << "#!/bin/sh\n" << body;
    std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  }
  // a folder whose name a shell would take apart
  const Path tree_ = Path(testing::TempDir()) / ("it's a $(rival) " + std::to_string(getpid()));
};

TEST_F(RunRivalTest, ArgumentsArriveAsTheyAre) {
  Python(R"(printf 'progress\n{"count": %d, "second": "%s"}\n' $# "$2")");
  const auto result = RunRival("rival.py", {"don't; $(stop) `now`", ""});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->dump(), R"({"count":3,"second":"don't; $(stop) `now`"})");
}

TEST_F(RunRivalTest, FailuresSayWhatHappened) {
  const auto message = [&](const std::string& body) {
    Python(body);
    return RunRival("rival.py", {}).status().message();
  };
  EXPECT_EQ(message("exit 3"), "rival.py: exit status 3");
  EXPECT_EQ(message("kill -9 $$"), "rival.py: killed by signal 9");
  EXPECT_EQ(message("echo done"), "rival.py: its last line is no JSON object");
  EXPECT_EQ(RunRival("other.py", {}).status().code(), Code::kNoInput);
}

// A child that burns a core counts as another process until it is waited for.
TEST(BenchTest, OthersTakeWhatTheirProcessorTimeSays) {
  const OthersShare others;
  const SteadyTime start = Now();
  const pid_t child = fork();
  if (child == 0) {
    while (Now() >= start) {
    }
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const double share = others.get(), seconds = SecondsSince(start);
  kill(child, SIGKILL);
  rusage used{};
  int status = 0;
  ASSERT_EQ(wait4(child, &status, 0, &used), child);
  const double burnt =
      static_cast<double>(used.ru_utime.tv_sec) + 1e-6 * static_cast<double>(used.ru_utime.tv_usec);
  EXPECT_GE(share * seconds * Cores(), 0.8 * burnt - 0.05);  // /proc/stat counts ticks of 10 ms
  EXPECT_LE(share, 1);
}

TEST(BenchTest, OurOwnWorkIsNotOthers) {
  EXPECT_DOUBLE_EQ(OthersShare::Of(/*busy=*/2, /*own=*/0.5, /*seconds=*/1, /*cores=*/2), 0.75);
  EXPECT_DOUBLE_EQ(OthersShare::Of(3, 3, 4, 2), 0);
  EXPECT_DOUBLE_EQ(OthersShare::Of(2.9, 3, 4, 2), 0) << "ticks are coarse";
}

TEST(BenchTest, AnUnknownWorkloadNamesTheNearest) {
  const auto found = FindWorkload("nois");
  EXPECT_EQ(found.status().code(), Code::kUsage);
  EXPECT_NE(found.status().message().find("did you mean noise?"), std::string::npos);
}

}  // namespace
}  // namespace samara::bench
