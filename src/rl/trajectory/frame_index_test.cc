#include "rl/trajectory/frame_index.h"

#include <gtest/gtest.h>

#include <vector>

namespace samara::frame_index_test {
namespace {

// The stack of nn/frame_stack.h, which evolution plays with, is the independent source.
TEST(StackedFramesTest, EveryPlaneIsTheOneOfTheFrameStack) {
  for (const StackOrder order : {StackOrder::kOldestFirst, StackOrder::kNewestFirst}) {
    for (const StackReset reset : {StackReset::kRepeat, StackReset::kZeros, StackReset::kFront}) {
      for (const int64_t depth : {1, 3, 4}) {
        if (reset == StackReset::kFront && order == StackOrder::kNewestFirst) continue;
        const FrameStackRule rule{.depth = depth, .order = order, .at_reset = reset};
        FrameStack stack(rule, 1);
        for (int64_t step = 0; step < 9; ++step) {
          const std::vector<float> frame = {static_cast<float>(step + 1)};
          step == 0 ? stack.Reset(frame) : stack.Push(frame);
          for (int64_t plane = 0; plane < depth; ++plane) {
            const int64_t expected = StackedFrame(rule, step, plane);
            EXPECT_EQ(stack.input()[static_cast<size_t>(plane)],
                      expected < 0 ? 0 : static_cast<float>(expected + 1))
                << Name(order) << ' ' << Name(reset) << " step " << step << " plane " << plane;
            EXPECT_LT(step - expected, depth) << "needs a frame that is not kept";
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace samara::frame_index_test
