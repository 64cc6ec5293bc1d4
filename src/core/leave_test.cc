// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/leave.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>

#include "gtest/gtest.h"

namespace samara {
namespace {

using std::filesystem::path;

// Runs `body` in a child whose two outputs go to `out`; its exit code.
int ExitOfChild(const path& out, const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    const int fd = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(fd, STDOUT_FILENO);
    ::dup2(fd, STDERR_FILENO);
    body();
    ::_exit(2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string TextOf(const path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

class LeaveTest : public testing::Test {
 protected:
  LeaveTest() {
    std::string name = testing::TempDir() + "leave-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~LeaveTest() override { std::filesystem::remove_all(folder_); }
  path folder_;
};

TEST_F(LeaveTest, PrintsOneLineAndOneObject) {
  const path out = folder_ / "out";
  EXPECT_EQ(ExitOfChild(out, [] { Leave(Code::kTryAgain, "a \"b\"\n\x1b[1m"); }), 75);
  EXPECT_EQ(TextOf(out), "samara: a \"b\"\\x0a\\x1b[1m\n");
  EXPECT_EQ(ExitOfChild(out,
                        [] {
                          LeaveWithJson();
                          Leave(Code::kNoResources, "a \"b\\\"\n");
                        }),
            71);
  EXPECT_EQ(TextOf(out),
            "samara: a \"b\\\"\\x0a\n{\"error\":\"a \\\"b\\\\\\\"\\u000a\",\"exit\":71}\n");
  EXPECT_EQ(ExitOfChild(out,
                        [] {
                          LeaveSilently();
                          Leave(Code::kTryAgain, "twice");
                        }),
            75);
  EXPECT_EQ(TextOf(out), "");
}

TEST_F(LeaveTest, RemovesWhatIsHalfMadeAndNothingElse) {
  const path file = folder_ / "file", tree = folder_ / "tree", kept = folder_ / "kept",
             outside = folder_ / "outside";
  std::filesystem::create_directories(tree / "inner" / "most");
  std::filesystem::create_directories(outside);
  for (int i = 0; i < 300; ++i) std::ofstream(tree / "inner" / std::to_string(i)) << i;
  for (const path& p : {file, kept, outside / "one"}) std::ofstream(p) << "text";
  std::filesystem::create_directory_symlink(outside, tree / "link");
  const auto body = [&] {
    const RemovedOnLeave first(file), second(tree), missing(folder_ / "missing");
    { const RemovedOnLeave finished(kept); }
    Leave(Code::kTryAgain, "stopped");
  };
  EXPECT_EQ(ExitOfChild(folder_ / "out", body), 75);
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    left.push_back(entry.path().filename());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<std::string>{"kept", "out", "outside"}));
  EXPECT_TRUE(std::filesystem::exists(outside / "one"));
}

}  // namespace
}  // namespace samara
