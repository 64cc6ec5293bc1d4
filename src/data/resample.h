// A part of an image at another size.
#pragma once

#include <cstdint>
#include <span>

#include "data/jpeg.h"

namespace samara {

struct Box {
  double left = 0, top = 0, width = 0, height = 0;  // in pixels of the image
};

// `box` of `image` as planes of `side` x `side` bytes, mirrored when asked for. Each pixel is the
// mean of those that it covers, weighted by a triangle at least one pixel to each side (bilinear
// with antialiasing). REQUIRES: the box has an area and lies inside, out.size() == 3 * side * side.
void Resample(const RgbImage& image, const Box& box, int side, bool mirror, std::span<uint8_t> out);

}  // namespace samara
