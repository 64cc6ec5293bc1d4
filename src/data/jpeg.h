// JPEG files to pixels.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace samara {

struct RgbImage {
  int width = 0, height = 0;
  std::vector<uint8_t> pixels;  // rows of red, green, blue
};

// kBadData for what is no JPEG, is damaged or cut off, or has more than 2^27 pixels. Grey images
// become grey RGB; those of four inks are converted as Adobe writes them. Without libjpeg: kConfig.
Result<RgbImage> DecodeJpeg(std::string_view bytes);

// kConfig when this build cannot decode, saying what to do.
Status CanDecodeJpeg();

}  // namespace samara
