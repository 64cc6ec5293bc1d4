// Watching an agent in a terminal: RGB frames drawn with half blocks in 24-bit colour.
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

namespace samara {

struct FrameSize {
  int width = 0, height = 0;  // pixels
  // Width of a shown pixel over its height: 1.0 for square pixels, 1.75 for an Atari's 160x210 on
  // the 4:3 screen it was made for.
  double pixel_aspect = 1.0;
};

// The frame as lines of half blocks ending in "\n": two pixels a character, each the mean of the
// frame's pixels under it, as large as fits into columns x rows. `rgb` is row-major, height * width
// * 3 bytes.
std::string HalfBlocks(std::span<const uint8_t> rgb, const FrameSize& size, int columns, int rows);

// The terminal's other screen while it lives. One thread at a time. The destructor gives the user's
// screen and cursor back: a signal handler must let the destructor run.
class TerminalView {
 public:
  explicit TerminalView(std::FILE* out);
  ~TerminalView();
  TerminalView(const TerminalView&) = delete;
  TerminalView& operator=(const TerminalView&) = delete;

  static bool Usable(std::FILE* out);  // a terminal that understands more than plain text
  // Draws the frame with `caption` (one line) beneath it; follows the terminal's size.
  void Show(std::span<const uint8_t> rgb, const FrameSize& size, std::string_view caption);

 private:
  std::FILE* const out_;
};

}  // namespace samara
