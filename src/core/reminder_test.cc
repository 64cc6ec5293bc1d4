// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/reminder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace samara::reminder_test {
namespace {

TEST(ReminderTest, SpeaksOnceWhenWorkTakesLong) {
  std::atomic<int> said{0};
  {
    const Reminder reminder(0.001, [&] { ++said; });
    while (said == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(said, 1);
}

TEST(ReminderTest, IsSilentWhenWorkIsOverBefore) {
  std::atomic<int> said{0};
  for (int i = 0; i < 100; ++i) const Reminder reminder(1e6, [&] { ++said; });
  EXPECT_EQ(said, 0);
}

}  // namespace
}  // namespace samara::reminder_test
