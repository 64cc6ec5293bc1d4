#include "bench/bench.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

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

TEST(BenchTest, AnUnknownWorkloadNamesTheNearest) {
  const auto found = FindWorkload("nois");
  EXPECT_EQ(found.status().code(), Code::kUsage);
  EXPECT_NE(found.status().message().find("did you mean noise?"), std::string::npos);
}

}  // namespace
}  // namespace samara::bench
