#include "view/terminal_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "core/check.h"
#include "core/log.h"
#include "view/terminal.h"

namespace samara {
namespace {

using Rgb = std::array<uint8_t, 3>;

// Size in shown pixels (one column wide, half a row high: about square) that keeps the proportions
// and fits; the height is even.
struct PictureSize {
  int width, height;
};

PictureSize Fit(const FrameSize& size, int columns, int rows) {
  const double wide = size.width * size.pixel_aspect, high = size.height;
  const double scale = std::min(columns / wide, 2.0 * rows / high);
  const int width = static_cast<int>(wide * scale), height = static_cast<int>(high * scale);
  return {std::clamp(width, 1, columns), std::clamp(height + (height & 1), 2, 2 * rows)};
}

// Mean colour of the frame's pixels whose rows and columns fall into cell (x, y); at least one.
Rgb MeanOfCell(std::span<const uint8_t> rgb, const FrameSize& size, const PictureSize& shown, int x,
               int y) {
  const auto from = [](int i, int cells, int n) {
    return static_cast<int>(int64_t{i} * n / cells);
  };
  const int x0 = from(x, shown.width, size.width), y0 = from(y, shown.height, size.height);
  const int x1 = std::max(from(x + 1, shown.width, size.width), x0 + 1);
  const int y1 = std::max(from(y + 1, shown.height, size.height), y0 + 1);
  std::array<uint32_t, 3> sum = {};
  for (int row = y0; row < y1; ++row)
    for (int column = x0; column < x1; ++column)
      for (size_t c = 0; c < 3; ++c)
        sum[c] += rgb[3 * (static_cast<size_t>(row) * size.width + column) + c];
  const auto n = static_cast<uint32_t>((x1 - x0) * (y1 - y0));
  Rgb mean;
  for (size_t c = 0; c < 3; ++c) mean[c] = static_cast<uint8_t>((sum[c] + n / 2) / n);
  return mean;
}

}  // namespace

std::string HalfBlocks(std::span<const uint8_t> rgb, const FrameSize& size, int columns, int rows) {
  CHECK(size.width > 0 && size.height > 0 && columns > 0 && rows > 0);
  CHECK_EQ(rgb.size(), size_t{3} * size.width * size.height);
  const PictureSize shown = Fit(size, columns, rows);
  std::string text;
  auto out = std::back_inserter(text);
  for (int y = 0; y < shown.height; y += 2) {
    // colours are set only where they change: emulator screens are mostly flat
    Rgb above_now = {}, below_now = {};
    for (int x = 0; x < shown.width; ++x) {
      const Rgb above = MeanOfCell(rgb, size, shown, x, y);
      const Rgb below = MeanOfCell(rgb, size, shown, x, y + 1);
      if (x == 0 || above != above_now)
        fmt::format_to(out, "\x1b[38;2;{};{};{}m", above[0], above[1], above[2]);
      if (x == 0 || below != below_now)
        fmt::format_to(out, "\x1b[48;2;{};{};{}m", below[0], below[1], below[2]);
      text += "\u2580";
      above_now = above;
      below_now = below;
    }
    text += "\x1b[0m\n";
  }
  return text;
}

bool TerminalView::Usable(std::FILE* out) { return IsTerminal(out); }

TerminalView::TerminalView(std::FILE* out) : out_(out) {
  std::fputs("\x1b[?1049h\x1b[?25l\x1b[2J", out_);  // other screen, no cursor, cleared
}

TerminalView::~TerminalView() {
  std::fputs("\x1b[0m\x1b[?25h\x1b[?1049l", out_);
  std::fflush(out_);
}

void TerminalView::Show(std::span<const uint8_t> rgb, const FrameSize& size,
                        std::string_view caption) {
  const TerminalSize terminal = SizeOfTerminal(out_);
  std::string text = "\x1b[H";  // home
  const std::string picture =
      HalfBlocks(rgb, size, terminal.columns, std::max(terminal.rows - 1, 1));
  // what a larger picture left on a line is erased before its end
  for (char c : picture) {
    if (c == '\n') text += "\x1b[K";
    text += c;
  }
  std::string line = EscapeControl(caption);
  line.resize(std::min(line.size(), static_cast<size_t>(terminal.columns)));
  text += line + "\x1b[J";
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
}

}  // namespace samara
