#include "rl/replay/replay_memory.h"

#include <gtest/gtest.h>

namespace samara::replay_memory_test {
namespace {

TEST(ReplayMemoryTest, WhatIsThereSaysHowMuchIsMissing) {
  EXPECT_EQ(ReplayMemory().Missing(), 0u);
  ReplayMemory memory{.most = 800, .least = 800};
  EXPECT_FALSE(memory.compressed());
  EXPECT_EQ(memory.Missing(), 800u);
  memory.stored = 10, memory.filled = 0.25;
  EXPECT_EQ(memory.Missing(), 600u);
  memory.least = 100;
  EXPECT_TRUE(memory.compressed());
  EXPECT_EQ(memory.Missing(), 75u) << "at least";
  memory.stored = 50;  // 200 when full
  EXPECT_EQ(memory.Missing(), 150u);
  memory.stored = 300;
  EXPECT_EQ(memory.Missing(), 600u) << "at most";
  memory.stored = 0, memory.filled = 0;
  EXPECT_EQ(memory.Missing(), 800u);
}

}  // namespace
}  // namespace samara::replay_memory_test
