// Which frames an agent sees together: the frame stack's rule (nn/frame_stack.h) where frames are
// stored one by one, for acting on the newest ones and for learning from unrolls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "nn/frame_stack.h"

namespace samara {

// Frames of an episode; more are a fault.
inline constexpr int64_t kStackStepsMax = std::numeric_limits<uint32_t>::max();

// The frame of plane `plane` at step `step` of an episode, counted from its beginning; negative:
// zeros. Never more than depth - 1 frames back.
inline int64_t StackedFrame(const FrameStackRule& rule, int64_t step, int64_t plane) {
  const int64_t age_rank =
      rule.order == StackOrder::kOldestFirst ? plane : rule.depth - 1 - plane;  // 0: the oldest
  const int64_t frame = step - (rule.depth - 1) + age_rank;
  switch (rule.at_reset) {
    case StackReset::kRepeat:
      return frame < 0 ? 0 : frame;
    case StackReset::kZeros:
      return frame;
    case StackReset::kFront:
      if (step >= rule.depth - 1) return frame;
      return plane <= step ? plane : -1;  // filled from the front, whatever the order
  }
  return frame;
}

// Sets the planes of the stack at step `step`: frame_at(number) is a frame of the episode; null:
// zeros. REQUIRES: rule.depth planes.
template <typename FrameAt>
void FillStack(const FrameStackRule& rule, int64_t step, const FrameAt& frame_at,
               std::span<const std::byte*> planes) {
  for (size_t plane = 0; plane < planes.size(); ++plane) {
    const int64_t number = StackedFrame(rule, step, static_cast<int64_t>(plane));
    planes[plane] = number < 0 ? nullptr : frame_at(number);
  }
}

}  // namespace samara
