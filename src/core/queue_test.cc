// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/queue.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

namespace samara {
namespace {

using namespace std::chrono_literals;

std::vector<int> PopAll(Queue<int>& queue, size_t at_most = 3) {
  std::vector<int> all, some(at_most);
  while (const size_t n = queue.PopUpTo(some))
    all.insert(all.end(), some.begin(), some.begin() + static_cast<ptrdiff_t>(n));
  return all;
}

bool IsBlocked(const std::future<bool>& call) {
  return call.wait_for(50ms) == std::future_status::timeout;
}

TEST(QueueTest, KeepsTheOrderAndTakesWhatIsThere) {
  Queue<int> queue(4);
  for (const int item : {1, 2, 3, 4}) ASSERT_TRUE(queue.Push(item));
  std::vector<int> out(3);
  EXPECT_EQ(queue.PopUpTo(out), 3U);
  EXPECT_EQ(out, (std::vector{1, 2, 3}));
  EXPECT_EQ(queue.PopUpTo(out), 1U);
  EXPECT_EQ(out[0], 4);
}

TEST(QueueTest, PushWaitsWhileFull) {
  Queue<int> queue(2);
  ASSERT_TRUE(queue.Push(1) && queue.Push(2));
  auto third = std::async(std::launch::async, [&] { return queue.Push(3); });
  EXPECT_TRUE(IsBlocked(third));
  std::vector<int> out(1);
  EXPECT_EQ(queue.PopUpTo(out), 1U);
  EXPECT_TRUE(third.get());
  queue.Finish();
  EXPECT_EQ(PopAll(queue), (std::vector{2, 3}));
}

TEST(QueueTest, FinishDrains) {
  Queue<int> queue(8);
  for (const int item : {1, 2, 3, 4, 5}) ASSERT_TRUE(queue.Push(item));
  queue.Finish();
  EXPECT_FALSE(queue.Push(6));
  EXPECT_EQ(PopAll(queue), (std::vector{1, 2, 3, 4, 5}));
  EXPECT_EQ(PopAll(queue), std::vector<int>());
}

TEST(QueueTest, CloseDrops) {
  Queue<int> queue(8);
  ASSERT_TRUE(queue.Push(1));
  queue.Close();
  EXPECT_FALSE(queue.Push(2));
  EXPECT_EQ(PopAll(queue), std::vector<int>());
}

TEST(QueueTest, BothEndsWakeTheThreadsThatWait) {
  for (const auto end : {&Queue<int>::Close, &Queue<int>::Finish}) {
    Queue<int> empty(1), full(1);
    ASSERT_TRUE(full.Push(1));
    auto pop = std::async(std::launch::async, [&] { return PopAll(empty).empty(); });
    auto push = std::async(std::launch::async, [&] { return full.Push(2); });
    EXPECT_TRUE(IsBlocked(pop) && IsBlocked(push));
    (empty.*end)();
    (full.*end)();
    EXPECT_TRUE(pop.get());
    EXPECT_FALSE(push.get());
  }
}

TEST(QueueTest, ManyProducersAndConsumersLoseNothing) {
  constexpr int kThreads = 4, kItems = 2'000;
  Queue<int> queue(16);
  std::vector<std::thread> producers;
  std::vector<std::vector<int>> taken(kThreads);
  std::vector<std::thread> consumers;
  for (int t = 0; t < kThreads; ++t) {
    consumers.emplace_back([&, t] { taken[t] = PopAll(queue, 1 + t); });
    producers.emplace_back([&, t] {
      for (int i = 0; i < kItems; ++i) EXPECT_TRUE(queue.Push(t * kItems + i));
    });
  }
  for (auto& producer : producers) producer.join();
  queue.Finish();
  for (auto& consumer : consumers) consumer.join();

  std::vector<int> seen(kThreads * kItems);
  for (const auto& items : taken) {
    std::vector<int> last(kThreads, -1);
    for (const int item : items) {
      ++seen[item];
      // each consumer meets one producer's items in the order they were pushed
      EXPECT_LT(last[item / kItems], item);
      last[item / kItems] = item;
    }
  }
  EXPECT_EQ(seen, std::vector<int>(kThreads * kItems, 1));
}

TEST(QueueTest, HoldsItemsThatOnlyMove) {
  Queue<std::unique_ptr<int>> queue(1);
  ASSERT_TRUE(queue.Push(std::make_unique<int>(7)));
  std::unique_ptr<int> out;
  ASSERT_EQ(queue.PopUpTo({&out, 1}), 1U);
  EXPECT_EQ(*out, 7);
}

}  // namespace
}  // namespace samara
