// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/frame_stack.h"

#include <gtest/gtest.h>

#include <deque>

namespace samara::frame_stack_test {
namespace {

std::vector<uint8_t> Frame(size_t elements, int number) {
  std::vector<uint8_t> frame(elements);
  for (size_t i = 0; i < elements; ++i) {
    frame[i] = static_cast<uint8_t>(37 * number + 11 * static_cast<int>(i));
  }
  return frame;
}

// The rules of StackReset and StackOrder as a list of planes (empty = zeros), independent of the
// layout.
std::vector<float> Expected(const FrameStackRule& rule,
                            const std::vector<std::vector<uint8_t>>& seen, size_t elements) {
  const auto depth = static_cast<size_t>(rule.depth);
  std::deque<std::vector<uint8_t>> planes;  // as they stand in the input
  const std::vector<uint8_t> zeros(elements, 0);
  for (size_t t = 0; t < seen.size(); ++t) {
    if (t == 0) {
      for (size_t k = 0; k < depth; ++k)
        planes.push_back(rule.at_reset == StackReset::kRepeat ? seen[0] : zeros);
    }
    if (rule.at_reset == StackReset::kFront && t < depth) {
      planes[t] = seen[t];
    } else if (rule.order == StackOrder::kNewestFirst) {
      planes.push_front(seen[t]);
      planes.pop_back();
    } else {
      planes.push_back(seen[t]);
      planes.pop_front();
    }
  }
  std::vector<float> input;
  for (size_t i = 0; i < elements; ++i) {
    for (const auto& plane : planes) input.push_back(static_cast<float>(plane[i] / 255.0));
  }
  return input;
}

TEST(FrameStackTest, FollowsEveryRule) {
  const size_t elements = 37;
  for (const int64_t depth : {1, 3, 4}) {
    for (const auto order : {StackOrder::kOldestFirst, StackOrder::kNewestFirst}) {
      for (const auto reset : {StackReset::kRepeat, StackReset::kZeros, StackReset::kFront}) {
        if (reset == StackReset::kFront && order == StackOrder::kNewestFirst) continue;
        const FrameStackRule rule{depth, order, reset};
        FrameStack stack(rule, elements);
        stack.Reset(Frame(elements, 99));  // an earlier episode leaves nothing
        stack.Push(Frame(elements, 98));
        std::vector<std::vector<uint8_t>> seen;
        for (int t = 0; t < 7; ++t) {
          seen.push_back(Frame(elements, t));
          t == 0 ? stack.Reset(seen.back()) : stack.Push(seen.back());
          const std::vector<float> input(stack.input().begin(), stack.input().end());
          EXPECT_EQ(input, Expected(rule, seen, elements))
              << depth << ' ' << Name(order) << ' ' << Name(reset) << " step " << t;
        }
      }
    }
  }
}

TEST(FrameStackTest, KeepsFloatFramesAsTheyAre) {
  FrameStack stack({4, StackOrder::kOldestFirst, StackReset::kZeros}, 2);
  stack.Reset(std::vector<float>{0.1F, 0.7F});
  stack.Push(std::vector<float>{0.2F, 0.8F});
  const std::vector<float> input(stack.input().begin(), stack.input().end());
  EXPECT_EQ(input, (std::vector<float>{0, 0, 0.1F, 0.2F, 0, 0, 0.7F, 0.8F}));
}

TEST(FrameStackTest, ContinuesFromASavedState) {
  const FrameStackRule rule{4, StackOrder::kOldestFirst, StackReset::kFront};
  FrameStack stack(rule, 5), other(rule, 5);
  stack.Reset(Frame(5, 1));
  stack.Push(Frame(5, 2));
  ASSERT_TRUE(other.Restore(stack.Save()).ok());
  for (int t = 3; t < 8; ++t) {
    stack.Push(Frame(5, t));
    other.Push(Frame(5, t));
    EXPECT_EQ(stack.Save(), other.Save());
  }
  EXPECT_EQ(other.Restore("short").code(), Code::kBadData);
}

}  // namespace
}  // namespace samara::frame_stack_test
