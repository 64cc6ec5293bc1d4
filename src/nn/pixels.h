// SPDX-License-Identifier: Apache-2.0 OR MIT
// Atari pixels: from two raw frames of palette indices to one observation.
//
// A rule says how the two frames are pooled, turned gray and resized; each follows one published
// implementation to the bit (doc/atari.md lists them with their formulas). Palettes come from the
// emulator at run time, as data. Screens may have any size. The kernels are chosen at run time and
// give the same bits at every level; tests compare them with OpenCV, Pillow and NumPy.
// Thread safety: one thread per PixelKernel (it owns its scratch).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/cpu.h"
#include "core/status.h"

namespace samara {

struct PixelRule {
  // gray-max: maximum of the two grays; rgb-max: gray of the maximum of each colour channel
  std::string pooling = "gray-max";
  // ale: the emulator's own table; y-truncated: float64 .299/.587/.114, truncated; cvtcolor:
  // OpenCV's integer luminance; y-float: float32 .299/.587/.114; y-unit: the same of RGB / 255
  std::string gray = "ale";
  // area, linear: OpenCV's INTER_AREA and INTER_LINEAR on bytes; pil: Pillow's BILINEAR on bytes,
  // columns before rows; pil-float: the same on float32, then truncated to bytes; aligned:
  // TensorFlow's bilinear with aligned corners, float32
  std::string resize = "area";
  int height = 210, width = 160;  // of the screen
  int out_height = 84, out_width = 84;
};

class PixelKernel {
 public:
  // `palette`: 256 x RGB, `gray`: 256 bytes, as the emulator has them. kConfig when the rule's
  // words are unknown, contradict each other, or a size is out of range.
  static Result<std::unique_ptr<PixelKernel>> Make(const PixelRule& rule,
                                                   std::span<const uint8_t> palette,
                                                   std::span<const uint8_t> gray,
                                                   IsaLevel isa = ActiveIsa());
  ~PixelKernel();
  PixelKernel(const PixelKernel&) = delete;
  PixelKernel& operator=(const PixelKernel&) = delete;

  bool float_output() const;  // float32 (aligned), otherwise bytes
  const PixelRule& rule() const;
  // a, b: height x width palette indices; b may equal a for a single frame. out: out_height x
  // out_width values. Unchecked core: the caller checked sizes.
  void Run(const uint8_t* a, const uint8_t* b, void* out);

 private:
  struct Plan;
  PixelKernel();
  std::unique_ptr<Plan> plan_;
};

}  // namespace samara
