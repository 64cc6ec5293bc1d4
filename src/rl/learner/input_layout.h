// How the environment's observations become a network's input: planes of a frame stack, or one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "env/interface.h"
#include "nn/frame_stack.h"

namespace samara {

inline constexpr int64_t kDepthMax = 64;  // of a frame stack

// Thread safety: any thread.
struct InputLayout {
  bool stacked = false;                         // `stack.depth` observations make an input
  FrameStackRule stack;                         // where they do
  int64_t height = 1, width = 1, channels = 1;  // of the input
  bool bytes = false;                           // uint8, else float32
  size_t plane_bytes = 0;                       // of one observation
  size_t pixel_bytes = 0;                       // of one of its pixels

  // `stack` as in AgentSetup. REQUIRES: none but for images.
  static InputLayout Make(const ObservationSpec& spec, const std::optional<FrameStackRule>& stack);
  size_t depth() const { return stacked ? static_cast<size_t>(stack.depth) : 1; }
  bool is_vector() const { return !bytes && height == 1 && width == 1; }  // of float32
  size_t input_bytes() const { return depth() * plane_bytes; }
  // One input from its planes, `depth` observations (null: zeros): all of a pixel stand together.
  void WriteInput(std::span<const std::byte* const> planes, std::byte* input) const;
  // `from`, an input, moved by so many pixels down and to the right; what comes in repeats the
  // edge.
  void MoveInput(int64_t down, int64_t right, const std::byte* from, std::byte* to) const;
};

// The layout of an agent's inputs. kConfig: a stack of vectors, or of too many frames.
Result<InputLayout> LayoutOf(const ObservationSpec& observation,
                             const std::optional<FrameStackRule>& stack);

}  // namespace samara
