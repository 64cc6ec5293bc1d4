// Simple shapes in an RGB picture, enough to watch a task. Coordinates are pixels
// from the top left corner; shapes are clipped to the picture.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "env/interface.h"

namespace samara {

struct Point {
  double x, y;
};
using Colour = std::array<uint8_t, 3>;
constexpr Colour kPaper{255, 255, 255}, kInk{30, 30, 30}, kWood{202, 152, 101},
    kSteel{129, 132, 203};

// Says in `spec` that the environment draws pictures of this size, `rate` a second, when it was
// made to render.
inline void DeclarePictures(EnvironmentSpec& spec, bool render, int64_t height, int64_t width,
                            double rate = 30) {
  if (!render) return;
  spec.render_height = height, spec.render_width = width, spec.render_frames = 1;
  spec.render_rate = rate;
}

class Picture {
 public:
  // `pixels` is borrowed: height x width x 3 bytes, row-major.
  Picture(std::span<std::byte> pixels, int64_t height, int64_t width);
  double width() const { return static_cast<double>(width_); }
  double height() const { return static_cast<double>(height_); }
  void Fill(Colour colour);
  void Box(Point top_left, Point bottom_right, Colour colour);
  // A stroke with round ends; from a point to itself it is a disc.
  void Line(Point from, Point to, double thickness, Colour colour);

 private:
  void Set(int64_t x, int64_t y, Colour colour);

  std::span<std::byte> pixels_;
  int64_t height_, width_;
};

}  // namespace samara
