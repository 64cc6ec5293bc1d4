// A native task seen from outside: its observations are the pictures that it draws.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "env/interface.h"

namespace samara {

constexpr int64_t kPixelsMin = 8, kPixelsMax = 256;

// The task that `inner` is, with gray pictures of `pixels` x `pixels` bytes as observations, their
// paper black and what is drawn on it bright: each pixel is the mean over its part of the picture,
// rounded. `render`: it also draws pictures for people, as `inner` does. REQUIRES: `inner` was made
// to render, and can.
std::unique_ptr<Environment> MakePixelObservations(std::unique_ptr<Environment> inner,
                                                   int64_t pixels, bool render);

// spec() of the above, from that of `inner`.
EnvironmentSpec PixelSpec(EnvironmentSpec inner, int64_t pixels, bool render);

// Makes a picture, `height` x `width` x 3 bytes RGB, a smaller negative in gray, 255 less (77 R +
// 150 G + 29 B) / 256 (ITU-R BT.601). `out`: pixels x pixels. Thread safety: none.
class PictureReducer {
 public:
  PictureReducer(int64_t height, int64_t width, int64_t pixels);
  void Reduce(std::span<const std::byte> picture, std::span<std::byte> out);

 private:
  const int64_t height_, width_, pixels_;
  std::vector<uint64_t> sums_;  // [pixels][pixels], weights height * width in all
  std::vector<uint64_t> row_;   // [pixels], of one row of the picture
};

}  // namespace samara
