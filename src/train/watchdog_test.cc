#include "train/watchdog.h"

#include <gtest/gtest.h>

#include <thread>

namespace samara {
namespace {

void Sleep(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST(WatchdogTest, WatchesBothThreadsFromStartToStop) {
  Watchdog late(0), patient(3600);
  EXPECT_TRUE(late.healthy()) << "not started";
  late.Start(), patient.Start();
  EXPECT_FALSE(late.healthy());
  EXPECT_TRUE(patient.healthy());
  late.Stop();
  EXPECT_TRUE(late.healthy());
}

// Turns of the learner are not enough: inference's time has to grow too.
TEST(WatchdogTest, InferenceThatHangsIsNotHealthy) {
  Watchdog watchdog(0.2);
  watchdog.Start();
  watchdog.Turn(1);
  EXPECT_TRUE(watchdog.healthy());
  for (int i = 0; i < 6; ++i) {
    Sleep(50);
    watchdog.Turn(1);
  }
  EXPECT_FALSE(watchdog.healthy());
  watchdog.Turn(2);
  EXPECT_TRUE(watchdog.healthy());
}

}  // namespace
}  // namespace samara
