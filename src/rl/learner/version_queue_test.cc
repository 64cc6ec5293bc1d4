#include "rl/learner/version_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace samara::version_queue_test {
namespace {

constexpr uint64_t kNewest = InferenceBatch::kNewest;

TEST(VersionQueueTest, KeepsTheNewestAndThoseThatMayBeAskedFor) {
  VersionQueue<const uint64_t> queue(/*kept=*/3, /*every=*/2);
  std::vector<uint64_t> gone;
  for (uint64_t version = 0; version <= 7; ++version)
    for (const auto& policy : queue.Publish(version, std::make_shared<const uint64_t>(version)))
      gone.push_back(*policy);
  EXPECT_EQ(gone, (std::vector<uint64_t>{1, 3, 0, 5, 2}));
  uint64_t version = kNewest;
  EXPECT_EQ(*queue.Get(version), 7u);
  EXPECT_EQ(version, 7u);
  version = 4;
  EXPECT_EQ(*queue.Get(version), 4u);
  EXPECT_FALSE(queue.Has(5));
}

// Where only the newest is kept, the one that Get returns is the one that it names.
TEST(VersionQueueTest, TheNewestIsThereWhileOthersArePublished) {
  VersionQueue<const uint64_t> queue(1, 1);
  queue.Publish(0, std::make_shared<const uint64_t>(0));
  std::atomic<bool> done = false;
  std::thread publishes([&] {
    for (uint64_t version = 1; version < 20'000; ++version)
      queue.Publish(version, std::make_shared<const uint64_t>(version));
    done = true;
  });
  while (!done) {
    uint64_t version = kNewest;
    const auto policy = queue.Get(version);
    ASSERT_NE(policy, nullptr);
    ASSERT_EQ(*policy, version);
  }
  publishes.join();
}

}  // namespace
}  // namespace samara::version_queue_test
