#include "env/picture.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace samara {
namespace {

// The pixels whose centres may lie in [low, high], clipped to [0, size).
std::pair<int64_t, int64_t> PixelRange(double low, double high, int64_t size) {
  const double edge = static_cast<double>(size);
  return {static_cast<int64_t>(std::clamp(std::floor(low), 0.0, edge)),
          static_cast<int64_t>(std::clamp(std::ceil(high), 0.0, edge))};
}

}  // namespace

Picture::Picture(std::span<std::byte> pixels, int64_t height, int64_t width)
    : pixels_(pixels), height_(height), width_(width) {
  CHECK_EQ(pixels.size(), static_cast<size_t>(height * width * 3));
}

void Picture::Set(int64_t x, int64_t y, Colour colour) {
  std::byte* at = pixels_.data() + (y * width_ + x) * 3;
  for (size_t c = 0; c < 3; ++c) at[c] = std::byte{colour[c]};
}

void Picture::Fill(Colour colour) { Box({0, 0}, {width(), height()}, colour); }

void Picture::Box(Point top_left, Point bottom_right, Colour colour) {
  const auto [x0, x1] = PixelRange(top_left.x, bottom_right.x, width_);
  const auto [y0, y1] = PixelRange(top_left.y, bottom_right.y, height_);
  for (int64_t y = y0; y < y1; ++y)
    for (int64_t x = x0; x < x1; ++x) Set(x, y, colour);
}

void Picture::Line(Point from, Point to, double thickness, Colour colour) {
  const double reach = thickness / 2;
  const auto [x0, x1] =
      PixelRange(std::min(from.x, to.x) - reach, std::max(from.x, to.x) + reach, width_);
  const auto [y0, y1] =
      PixelRange(std::min(from.y, to.y) - reach, std::max(from.y, to.y) + reach, height_);
  const double dx = to.x - from.x, dy = to.y - from.y, length2 = dx * dx + dy * dy;
  for (int64_t y = y0; y < y1; ++y) {
    for (int64_t x = x0; x < x1; ++x) {
      // distance of the pixel's centre from the nearest point of the segment
      const double px = static_cast<double>(x) + 0.5 - from.x;
      const double py = static_cast<double>(y) + 0.5 - from.y;
      const double t = length2 > 0 ? std::clamp((px * dx + py * dy) / length2, 0.0, 1.0) : 0;
      const double ex = px - t * dx, ey = py - t * dy;
      if (ex * ex + ey * ey <= reach * reach) Set(x, y, colour);
    }
  }
}

}  // namespace samara
