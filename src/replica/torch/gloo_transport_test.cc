// State after rounds over Gloo that fail.
#include "replica/torch/c10d.h"
// after the door to torch
#include <gtest/gtest.h>

#include <latch>
#include <thread>

namespace samara {
namespace {

using namespace std::chrono_literals;

// Gloo goes on with a round that this rank has given up, into memory that must still be there.
TEST(GlooTransportTest, ARankThatComesLateWritesIntoNoMemoryOfOthers) {
  constexpr size_t kBytes = 4096;
  const auto store = MakeMemoryStore();
  std::latch left(1), written(1);
  const CollectiveHeader header{.sequence = 1, .text = "late"};
  const auto rank = [&](int r) {
    auto made = MakeGlooTransport(r, 2, store, "127.0.0.1", 20'000ms);
    ASSERT_TRUE(made.ok()) << made.status().message();
    if (r == 1) left.wait();
    const Status status = (*made)->Gather(
        {.header = &header, .bytes = kBytes, .deadline = Now() + (r == 0 ? 100ms : 1000ms)},
        [](std::span<std::byte> mine) { std::fill(mine.begin(), mine.end(), std::byte{7}); },
        [](std::span<const std::span<const std::byte>>) {});
    EXPECT_FALSE(status.ok());
    made->reset();
    if (r == 1) return written.count_down();
    // takes the place of whatever the transport has freed
    std::vector<std::vector<std::byte>> blocks;
    for (int i = 0; i < 64; ++i)
      for (size_t size = 512; size <= 8192; size += 16) blocks.emplace_back(size);
    left.count_down();
    written.wait();
    for (const auto& block : blocks) {
      EXPECT_TRUE(std::all_of(block.begin(), block.end(), [](auto b) { return b == std::byte{}; }))
          << block.size();
    }
  };
  std::jthread other(rank, 1);
  rank(0);
}

}  // namespace
}  // namespace samara
