#include "rl/learner/slot_frames.h"

#include <cstring>

#include "rl/trajectory/frame_index.h"

namespace samara {

void SlotFrames::Push(uint32_t slot, int64_t step, std::span<const std::byte> frame,
                      std::byte* input, std::byte* history) const {
  const size_t bytes = layout.plane_bytes;
  const auto depth = static_cast<int64_t>(layout.depth());
  if (history != nullptr) {
    for (int64_t age = 1; age < depth; ++age, history += bytes) {
      if (age <= step)
        std::memcpy(history, At(slot, step - age), bytes);
      else
        std::memset(history, 0, bytes);
    }
  }
  std::memcpy(At(slot, step), frame.data(), bytes);
  const std::byte* stack[kDepthMax];
  const auto all = std::span(stack).first(layout.depth());
  FillStack(
      layout.stack, step, [&](int64_t number) { return At(slot, number); }, all);
  layout.WriteInput(all, input);
}

}  // namespace samara
