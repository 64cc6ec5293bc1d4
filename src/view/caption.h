// A short text in a picture, such as the score of an episode in its video.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace samara {

// Draws `text` in light letters on a dark strip in the lower left corner. Letters
// (all drawn as capitals), digits and .,-+: are known; anything else becomes a gap. What does not
// fit is cut off. `rgb` is row-major, height * width * 3 bytes.
void DrawCaption(std::span<uint8_t> rgb, int height, int width, std::string_view text);

}  // namespace samara
