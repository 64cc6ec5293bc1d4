// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/mutex.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <vector>

namespace samara {
namespace {

using namespace std::chrono_literals;

struct Counter {
  Mutex mu;
  CondVar changed;
  int count GUARDED_BY(mu) = 0;
};

TEST(MutexTest, LetsOneThreadInAtATime) {
  Counter c;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&c] {
      for (int i = 0; i < 10'000; ++i) {
        const MutexLock lock(c.mu);
        ++c.count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const MutexLock lock(c.mu);
  EXPECT_EQ(c.count, 40'000);
}

TEST(MutexTest, LockIsFreeBetweenUnlockAndLock) {
  Counter c;
  MutexLock lock(c.mu);
  lock.Unlock();
  std::async(std::launch::async, [&c] {
    const MutexLock other(c.mu);
    c.count = 1;
  }).get();
  lock.Lock();
  EXPECT_EQ(c.count, 1);
}

TEST(MutexTest, WaitReleasesTheMutexUntilTheConditionHolds) {
  Counter c;
  auto adder = std::async(std::launch::async, [&c] {
    for (int i = 0; i < 3; ++i) {
      const MutexLock lock(c.mu);
      ++c.count;
      c.changed.NotifyAll();
    }
  });
  MutexLock lock(c.mu);
  c.changed.Wait(c.mu, [&c]() REQUIRES(c.mu) { return c.count == 3; });
  EXPECT_EQ(c.count, 3);
}

TEST(MutexTest, TimedWaitsReturnTheCondition) {
  Counter c;
  const MutexLock lock(c.mu);
  const auto never = [&c]() REQUIRES(c.mu) { return c.count == 1; };
  EXPECT_FALSE(c.changed.WaitFor(c.mu, 1ms, never));
  EXPECT_FALSE(c.changed.WaitUntil(c.mu, std::chrono::steady_clock::now() + 1ms, never));
  c.count = 1;
  EXPECT_TRUE(c.changed.WaitFor(c.mu, 0ms, never));
}

}  // namespace
}  // namespace samara
