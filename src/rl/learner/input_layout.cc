#include "rl/learner/input_layout.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/check.h"

namespace samara {

InputLayout InputLayout::Make(const ObservationSpec& spec,
                              const std::optional<FrameStackRule>& stack) {
  InputLayout layout;
  layout.bytes = spec.dtype == DType::kUint8;
  layout.plane_bytes = layout.pixel_bytes = spec.bytes();
  layout.channels = static_cast<int64_t>(spec.elements());
  if (!spec.image()) {
    CHECK(!stack) << "vectors are not stacked";
    return layout;
  }
  const bool gray = spec.shape.size() == 2;
  layout.height = spec.shape[0], layout.width = spec.shape[1];
  layout.channels = gray ? 1 : spec.shape[2];
  layout.pixel_bytes = static_cast<size_t>(layout.channels) * SizeOf(spec.dtype);
  layout.stack = stack.value_or(FrameStackRule{.depth = gray ? 4 : 1});
  // gray images of depth 1 too: checkpoints hold what their slots remember
  layout.stacked = gray || layout.stack.depth > 1;
  layout.channels *= layout.stack.depth;
  return layout;
}

namespace {

// out[i][plane] = planes[plane][i] for `n` pixels of `bytes`; a null plane is zeros. `kBytes`: the
// same where the compiler may know it, else 0.
template <size_t kBytes>
void Interleave(std::span<const std::byte* const> planes, size_t n, size_t bytes, std::byte* out) {
  const size_t pixel = kBytes > 0 ? kBytes : bytes, stride = planes.size() * pixel;
  for (const std::byte* plane : planes) {
    std::byte* to = out;
    out += pixel;
    for (size_t i = 0; i < n; ++i, to += stride) {
      if (plane == nullptr)
        std::memset(to, 0, pixel);
      else
        std::memcpy(to, plane + i * pixel, pixel);
    }
  }
}

constexpr size_t kInterleave4Max = 1 << 20;

// The usual depth of gray bytes, four at a time. REQUIRES: n <= kInterleave4Max.
void Interleave4(std::span<const std::byte* const> planes, size_t n, uint8_t* out) {
  static const std::vector<std::byte> zeros(kInterleave4Max);
  const uint8_t* p[4];
  for (size_t i = 0; i < 4; ++i)
    p[i] = reinterpret_cast<const uint8_t*>(planes[i] != nullptr ? planes[i] : zeros.data());
  for (size_t i = 0; i < n; ++i) {
    const uint32_t pixel = uint32_t{p[0][i]} | uint32_t{p[1][i]} << 8 | uint32_t{p[2][i]} << 16 |
                           uint32_t{p[3][i]} << 24;
    std::memcpy(out + 4 * i, &pixel, sizeof pixel);
  }
}

}  // namespace

void InputLayout::WriteInput(std::span<const std::byte* const> planes, std::byte* input) const {
  const size_t pixels = plane_bytes / pixel_bytes;
  if (planes.size() == 1)
    std::memcpy(input, planes[0], plane_bytes);
  else if (pixel_bytes == 1 && planes.size() == 4 && pixels <= kInterleave4Max)
    Interleave4(planes, pixels, reinterpret_cast<uint8_t*>(input));
  else if (pixel_bytes == 1)
    Interleave<1>(planes, pixels, pixel_bytes, input);
  else if (pixel_bytes == 3)
    Interleave<3>(planes, pixels, pixel_bytes, input);
  else if (pixel_bytes == 4)
    Interleave<4>(planes, pixels, pixel_bytes, input);
  else
    Interleave<0>(planes, pixels, pixel_bytes, input);
}

void InputLayout::MoveInput(ImageShift shift, const float* from, float* to) const {
  const auto pixel = static_cast<size_t>(channels), columns = static_cast<size_t>(width);
  const auto inside = [&](int64_t x) {
    return static_cast<size_t>(std::clamp<int64_t>(x, 0, width));
  };
  const size_t first = inside(shift.right), end = inside(width + shift.right),
               left = inside(-shift.right);
  for (int64_t y = 0; y < height; ++y, to += columns * pixel) {
    const auto row = static_cast<size_t>(std::clamp<int64_t>(y - shift.down, 0, height - 1));
    const float* line = from + row * columns * pixel;
    for (size_t x = 0; x < first; ++x) std::copy_n(line, pixel, to + x * pixel);
    std::copy_n(line + left * pixel, (end - first) * pixel, to + first * pixel);
    for (size_t x = end; x < columns; ++x)
      std::copy_n(line + (columns - 1) * pixel, pixel, to + x * pixel);
  }
}

Result<InputLayout> LayoutOf(const ObservationSpec& observation,
                             const std::optional<FrameStackRule>& stack) {
  if (stack && stack->depth > kDepthMax)
    return Status(Code::kConfig, "a stack of " + std::to_string(stack->depth) +
                                     " frames: expected at most " + std::to_string(kDepthMax));
  if (stack && !observation.image())
    return Status(Code::kConfig,
                  "env.stack=" + std::to_string(stack->depth) +
                      ": the environment's observations are vectors, which are not stacked; "
                      "expected 0");
  return InputLayout::Make(observation, stack);
}

}  // namespace samara
