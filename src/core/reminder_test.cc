// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/reminder.h"

#include <gtest/gtest.h>

#include <algorithm>
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

TEST(ReminderTest, WhatIsAwaitedBeginsAnewWithEveryOneThatComes) {
  std::atomic<int> said{0}, looks{0};
  {
    const Reminder reminder(
        0.001, [&] { ++said; }, [&] { return std::optional<uint64_t>(++looks); });
    while (looks < 20) std::this_thread::yield();
    EXPECT_EQ(said, 0);
  }
  {
    const Reminder reminder(
        0.001, [&] { ++said; }, [&]() -> std::optional<uint64_t> { return ++looks, std::nullopt; });
    while (looks < 40) std::this_thread::yield();
    EXPECT_EQ(said, 0) << "nothing was awaited";
  }
  {
    const Reminder reminder(
        0.001, [&] { ++said; }, [&]() -> std::optional<uint64_t> { return std::min(++looks, 60); });
    while (said == 0) std::this_thread::yield();
    EXPECT_GT(looks, 60) << "as long as some came";
  }
  EXPECT_EQ(said, 1);
}

}  // namespace
}  // namespace samara::reminder_test
