// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/thread.h"

#include <atomic>
#include <barrier>
#include <condition_variable>
#include <mutex>
#include <new>

#include "gtest/gtest.h"

namespace samara {
namespace {

// Bodies that return when they are told to, as those of every owner.
struct Waiting {
  std::mutex mu;
  std::condition_variable changed;
  bool stopped = false;
  int started = 0;
  ThreadGroup threads{[this] {
    const std::lock_guard lock(mu);
    stopped = true;
    changed.notify_all();
  }};
  Status Start(size_t count) {
    return threads.Start("wait ", count, [this](size_t) {
      std::unique_lock lock(mu);
      ++started;
      changed.wait(lock, [this] { return stopped; });
    });
  }
};

TEST(ThreadGroupTest, RunsNoneWhenOneCannotStart) {
  for (int n = 1; n <= 5; ++n) {
    TEST_FailNthThread(n);
    Waiting waiting;
    const Status started = waiting.Start(5);
    EXPECT_FALSE(TEST_ThreadFailurePending());
    EXPECT_EQ(started.code(), Code::kNoResources);
    EXPECT_NE(started.message().find("thread 'wait " + std::to_string(n - 1) + "'"),
              std::string::npos)
        << started.message();
    EXPECT_EQ(waiting.started, 0);
    // the same group may try again
    EXPECT_TRUE(waiting.Start(5).ok());
  }
}

TEST(ThreadGroupTest, StopsItsThreadsWhenAnExceptionPasses) {
  std::atomic<bool> stopped{false};
  std::atomic<int> ended{0};
  try {
    ThreadGroup threads([&] { stopped = true; });
    ASSERT_TRUE(threads
                    .Start("wait ", 3,
                           [&](size_t) {
                             while (!stopped) std::this_thread::yield();
                             ++ended;
                           })
                    .ok());
    throw std::bad_alloc();
  } catch (const std::bad_alloc&) {
    EXPECT_EQ(ended, 3);
  }
}

TEST(ThreadGroupTest, BodiesMayWaitForEachOther) {
  std::barrier together(4);
  ThreadGroup threads(nullptr);
  ASSERT_TRUE(threads.Start("meet ", 4, [&](size_t) { together.arrive_and_wait(); }).ok());
}

TEST(ThreadGroupTest, JoinWaitsForBodiesThatReturnByThemselves) {
  std::atomic<size_t> sum{0};
  ThreadGroup threads(nullptr);
  ASSERT_TRUE(threads.Start("add ", 4, [&](size_t i) { sum += i; }).ok());
  threads.Join();
  EXPECT_EQ(sum, 6U);
}

TEST(ThreadTest, SaysWhatToLowerWhenItCannotStart) {
  TEST_FailNthThread(1);
  const auto thread = Thread::Start("lonely", [] {});
  EXPECT_EQ(thread.status().code(), Code::kNoResources);
  EXPECT_EQ(thread.status().message().find(
                "cannot start thread 'lonely': Resource temporarily unavailable; use fewer"),
            0U)
      << thread.status().message();
}

TEST(ThreadDeathTest, ALackOfMemoryOnAThreadIsOneLineAndItsCode) {
  EXPECT_EXIT(Thread("hungry", [] { throw std::bad_alloc(); }).Join(), testing::ExitedWithCode(71),
              "^samara: thread hungry: out of memory; use fewer");
  EXPECT_DEATH(Thread("buggy", [] { throw std::logic_error("a bug"); }).Join(), "a bug");
}

}  // namespace
}  // namespace samara
