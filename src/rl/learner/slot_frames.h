// Frames that slots remember on the CPU, of which each new one makes a stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "rl/learner/input_layout.h"

namespace samara {

// A view of `planes`, [slots][depth][plane_bytes]; frame n of an episode is in place n % depth.
struct SlotFrames {
  // Frame number `step` of the slot's episode joins its others. `input` becomes the stack; where
  // `history` is not null it becomes the depth - 1 frames before this one, the last one first,
  // zeros before the episode.
  void Push(uint32_t slot, int64_t step, std::span<const std::byte> frame, std::byte* input,
            std::byte* history) const;

  const InputLayout& layout;  // stacked
  std::byte* planes;

 private:
  std::byte* At(uint32_t slot, int64_t frame) const {
    const auto depth = static_cast<int64_t>(layout.depth());
    return planes + static_cast<size_t>(int64_t{slot} * depth + frame % depth) * layout.plane_bytes;
  }
};

}  // namespace samara
