// SPDX-License-Identifier: Apache-2.0 OR MIT
// Frame stack at the learner process: a simulator sends its newest frame, the
// stack turns the last `depth` of them into a network's input.
//
// Input layout: float32 [row][column][depth]. Bytes become value / 255 in float32 (correctly
// rounded, the same bits on every machine), float32 frames stay as they are. Thread safety: none;
// one stack per slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace samara {

enum class StackOrder : uint8_t { kOldestFirst, kNewestFirst };
enum class StackReset : uint8_t {
  kRepeat,  // the first frame in every plane
  kZeros,   // zeros, and the first frame as the newest
  kFront,   // fills from the front: A000, AB00, ABC0, ABCD, then like kZeros
};
std::string_view Name(StackOrder order);  // "oldest-first", "newest-first"
std::string_view Name(StackReset reset);  // "repeat", "zeros", "front"

struct FrameStackRule {
  int64_t depth = 4;
  StackOrder order = StackOrder::kOldestFirst;
  StackReset at_reset = StackReset::kRepeat;
};

class FrameStack {
 public:
  // `elements`: rows x columns of one frame. REQUIRES: elements > 0, depth > 0.
  FrameStack(FrameStackRule rule, size_t elements);

  // The first frame of an episode, then one per step. REQUIRES: frame.size() == elements.
  void Reset(std::span<const uint8_t> frame);
  void Reset(std::span<const float> frame);
  void Push(std::span<const uint8_t> frame);
  void Push(std::span<const float> frame);

  // The stack as the network's input; valid until the next call.
  std::span<const float> input() const { return input_; }
  const FrameStackRule& rule() const { return rule_; }
  // The planes held, oldest first; Restore refuses a state of another size with kBadData.
  std::string Save() const;
  Status Restore(std::string_view state);

 private:
  template <typename T>
  void Start(std::span<const T> frame);
  template <typename T>
  void Append(std::span<const T> frame);

  FrameStackRule rule_;
  size_t elements_;
  int64_t filled_ = 0;        // planes written since Reset, up to depth (kFront)
  std::vector<float> input_;  // [elements][depth]
};

}  // namespace samara
