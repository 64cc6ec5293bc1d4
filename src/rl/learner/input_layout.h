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

// Pixels down and to the right.
struct ImageShift {
  int64_t down = 0, right = 0;
  bool operator==(const ImageShift&) const = default;
};

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
  // `from`, the numbers of an input, moved by so many pixels; what comes in repeats the edge.
  void MoveInput(ImageShift shift, const float* from, float* to) const;
};

// Numbers of bytes: value / 255.
inline void BytesToUnit(const std::byte* from, std::span<float> to) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(from);
  for (size_t i = 0; i < to.size(); ++i) to[i] = static_cast<float>(bytes[i]) / 255.0F;
}

// The layout of an agent's inputs. kConfig: a stack of vectors, or of too many frames.
Result<InputLayout> LayoutOf(const ObservationSpec& observation,
                             const std::optional<FrameStackRule>& stack);

}  // namespace samara
