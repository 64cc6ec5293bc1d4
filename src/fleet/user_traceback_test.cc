#include "fleet/user_traceback.h"

#include <gtest/gtest.h>

namespace samara {
namespace {

using Lines = std::vector<std::string>;

void TakeAll(UserTraceback& traceback, const Lines& lines) {
  for (const std::string& line : lines) traceback.Take(line);
}

const Lines kFailed = {"Traceback (most recent call last):",
                       "  File \"/a/python/samara/gym.py\", line 127, in step",
                       "    result = self.env.step(given)",
                       "             ^^^^^^^^^^^^^^^^^^^^",
                       "  File \"/a/site-packages/gymnasium/core.py\", line 342, in step",
                       "    return self.env.step(action)",
                       "  File \"/home/me/boom.py\", line 13, in step",
                       "    self.stumble()",
                       "    ~~~~^^^^^^^^^^",
                       "ValueError: boom"};

TEST(UserTracebackTest, KeepsTheUsersFramesAlone) {
  UserTraceback traceback;
  TakeAll(traceback, {"hello", "    indented text of the user's"});
  EXPECT_EQ(traceback.lines(), Lines());
  TakeAll(traceback, kFailed);
  TakeAll(traceback, {"  File \"/home/me/boom.py\" is no frame", "    nor is this"});
  EXPECT_EQ(traceback.lines(),
            (Lines{"  File \"/home/me/boom.py\", line 13, in step", "    self.stumble()"}));
}

TEST(UserTracebackTest, TheLastTracebackReplacesEarlierOnes) {
  UserTraceback traceback;
  TakeAll(traceback, kFailed);
  TakeAll(traceback, {"Traceback (most recent call last):", "  File \"other.py\", line 1, in f",
                      "    1 / 0", "ZeroDivisionError: division by zero"});
  EXPECT_EQ(traceback.lines(), (Lines{"  File \"other.py\", line 1, in f", "    1 / 0"}));
}

TEST(UserTracebackTest, ARecursionWithoutEndIsCut) {
  UserTraceback traceback;
  traceback.Take("Traceback (most recent call last):");
  for (int i = 0; i < 1000; ++i) TakeAll(traceback, {"  File \"me.py\", line 1, in f", "    f()"});
  EXPECT_EQ(traceback.lines().size(), 40U);
}

}  // namespace
}  // namespace samara
