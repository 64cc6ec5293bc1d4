// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/exit_status.h"

#include <gtest/gtest.h>

#include <csignal>

namespace samara {
namespace {

// The layout of Linux's wait status: the exit code in the second byte, else the signal in the
// first.
TEST(ExitStatusTest, SaysCodeOrSignal) {
  EXPECT_EQ(DescribeExit(0), "exit status 0");
  EXPECT_EQ(DescribeExit(3 << 8), "exit status 3");
  EXPECT_EQ(DescribeExit(SIGKILL), "killed by signal 9 (Killed)");
}

}  // namespace
}  // namespace samara
