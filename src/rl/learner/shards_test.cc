#include "rl/learner/shards.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

namespace samara::shards_test {
namespace {

TEST(ShardsTest, EveryShardIsWorkedOnOnceAndTheSameThreadsAreUsedAgain) {
  ShardThreads threads(3, 7);
  std::mutex mu;
  std::set<std::thread::id> ids;
  for (int round = 0; round < 200; ++round) {
    for (const size_t count : {1u, 2u, 3u, 7u}) {
      std::vector<std::atomic<int>> calls(count);
      ASSERT_TRUE(threads
                      .Run(count,
                           [&](size_t i) {
                             ++calls[i];
                             const std::lock_guard lock(mu);
                             ids.insert(std::this_thread::get_id());
                           })
                      .ok());
      for (const auto& called : calls) EXPECT_EQ(called, 1);
    }
  }
  EXPECT_EQ(ids.size(), 3u);
}

TEST(ShardsTest, TheFirstFailureByShardIsReturnedAndWorkGoesOnAfterwards) {
  ShardThreads threads(2, 4);
  const Status failed = threads.Run(4, [](size_t i) {
    if (i >= 1) throw std::runtime_error("shard " + std::to_string(i));
  });
  EXPECT_NE(failed.message().find("shard 1"), std::string::npos) << failed.message();
  EXPECT_TRUE(threads.Run(4, [](size_t) {}).ok());
}

TEST(ShardsTest, RowsAreAddedInTheirOrder) {
  const std::vector<float> a = {1e8F, 1}, b = {1, 2}, c = {-1e8F, 3};
  const std::vector<std::span<const float>> rows = {a, b, c};
  std::vector<float> sum(2);
  ASSERT_TRUE(AddShards(nullptr, rows, sum).ok());
  EXPECT_EQ(sum, (std::vector<float>{(1e8F + 1) - 1e8F, 6}));
}

TEST(ShardsTest, TheLargestNumberOfAllShardsComesWithTheirSum) {
  std::vector<std::vector<float>> rows;
  for (int64_t shard = 0; shard < 3; ++shard) {
    rows.push_back({1, 2});
    AppendLargest(3, shard, shard == 1 ? 0.7F : 0.1F, rows.back());
    EXPECT_EQ(rows.back().size(), 5u);
  }
  std::vector<std::span<const float>> views(rows.begin(), rows.end());
  std::vector<float> sum(5);
  ASSERT_TRUE(AddShards(nullptr, views, sum).ok());
  EXPECT_EQ(sum[0], 3);
  EXPECT_EQ(sum[1], 6);
  EXPECT_EQ(LargestOf(3, sum), 0.7F);
}

}  // namespace
}  // namespace samara::shards_test
