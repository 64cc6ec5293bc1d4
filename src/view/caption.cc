#include "view/caption.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/check.h"

namespace samara {
namespace {

constexpr int kGlyphWidth = 3, kGlyphHeight = 5;  // pixels of a letter; one more lies between two

struct Glyph {
  char letter;
  std::array<uint8_t, kGlyphHeight> rows;  // from the top; the highest of three bits is the left
};

// clang-format off
constexpr Glyph kGlyphs[] = {
    {'A', {0b010, 0b101, 0b111, 0b101, 0b101}},
    {'B', {0b110, 0b101, 0b110, 0b101, 0b110}},
    {'C', {0b011, 0b100, 0b100, 0b100, 0b011}},
    {'D', {0b110, 0b101, 0b101, 0b101, 0b110}},
    {'E', {0b111, 0b100, 0b110, 0b100, 0b111}},
    {'F', {0b111, 0b100, 0b110, 0b100, 0b100}},
    {'G', {0b011, 0b100, 0b101, 0b101, 0b011}},
    {'H', {0b101, 0b101, 0b111, 0b101, 0b101}},
    {'I', {0b111, 0b010, 0b010, 0b010, 0b111}},
    {'J', {0b001, 0b001, 0b001, 0b101, 0b010}},
    {'K', {0b101, 0b101, 0b110, 0b101, 0b101}},
    {'L', {0b100, 0b100, 0b100, 0b100, 0b111}},
    {'M', {0b101, 0b111, 0b111, 0b101, 0b101}},
    {'N', {0b110, 0b101, 0b101, 0b101, 0b101}},
    {'O', {0b010, 0b101, 0b101, 0b101, 0b010}},
    {'P', {0b110, 0b101, 0b110, 0b100, 0b100}},
    {'Q', {0b010, 0b101, 0b101, 0b111, 0b011}},
    {'R', {0b110, 0b101, 0b110, 0b101, 0b101}},
    {'S', {0b011, 0b100, 0b010, 0b001, 0b110}},
    {'T', {0b111, 0b010, 0b010, 0b010, 0b010}},
    {'U', {0b101, 0b101, 0b101, 0b101, 0b111}},
    {'V', {0b101, 0b101, 0b101, 0b101, 0b010}},
    {'W', {0b101, 0b101, 0b111, 0b111, 0b101}},
    {'X', {0b101, 0b101, 0b010, 0b101, 0b101}},
    {'Y', {0b101, 0b101, 0b010, 0b010, 0b010}},
    {'Z', {0b111, 0b001, 0b010, 0b100, 0b111}},
    {'0', {0b111, 0b101, 0b101, 0b101, 0b111}},
    {'1', {0b010, 0b110, 0b010, 0b010, 0b111}},
    {'2', {0b111, 0b001, 0b111, 0b100, 0b111}},
    {'3', {0b111, 0b001, 0b111, 0b001, 0b111}},
    {'4', {0b101, 0b101, 0b111, 0b001, 0b001}},
    {'5', {0b111, 0b100, 0b111, 0b001, 0b111}},
    {'6', {0b111, 0b100, 0b111, 0b101, 0b111}},
    {'7', {0b111, 0b001, 0b001, 0b010, 0b010}},
    {'8', {0b111, 0b101, 0b111, 0b101, 0b111}},
    {'9', {0b111, 0b101, 0b111, 0b001, 0b111}},
    {'.', {0b000, 0b000, 0b000, 0b000, 0b010}},
    {',', {0b000, 0b000, 0b000, 0b010, 0b100}},
    {'-', {0b000, 0b000, 0b111, 0b000, 0b000}},
    {'+', {0b000, 0b010, 0b111, 0b010, 0b000}},
    {':', {0b000, 0b010, 0b000, 0b010, 0b000}}};
// clang-format on

bool Inked(char letter, int row, int column) {
  const bool small = letter >= 'a' && letter <= 'z';  // as in 2e-05: drawn as a capital
  const char drawn = small ? static_cast<char>(letter - 'a' + 'A') : letter;
  const auto* const glyph = std::ranges::find(kGlyphs, drawn, &Glyph::letter);
  return glyph != std::end(kGlyphs) &&
         (glyph->rows[static_cast<size_t>(row)] >> (kGlyphWidth - 1 - column) & 1) != 0;
}

// Whether pixel (row, column) of the text, which has an empty border of one pixel, has ink.
bool Inked(std::string_view text, int row, int column) {
  const int y = row - 1, x = column - 1;
  if (y < 0 || y >= kGlyphHeight || x < 0) return false;
  const auto letter = static_cast<size_t>(x / (kGlyphWidth + 1));
  const int within = x % (kGlyphWidth + 1);
  return letter < text.size() && within < kGlyphWidth && Inked(text[letter], y, within);
}

}  // namespace

void DrawCaption(std::span<uint8_t> rgb, int height, int width, std::string_view text) {
  CHECK_EQ(rgb.size(), size_t{3} * height * width);
  constexpr uint8_t kLight = 235, kDark = 20;
  const int columns = (kGlyphWidth + 1) * static_cast<int>(text.size()) + 1;
  const int rows = kGlyphHeight + 2;
  // a twentieth of the picture's height, where the text fits into its width
  const int wanted = static_cast<int>(std::lround(height / 120.0));
  const int scale = std::max(1, std::min(wanted, width / columns));
  const int top = std::max(0, height - rows * scale);
  for (int y = top; y < height; ++y) {
    for (int x = 0; x < std::min(width, columns * scale); ++x) {
      const bool ink = Inked(text, (y - top) / scale, x / scale);
      uint8_t* const pixel = &rgb[3 * (static_cast<size_t>(y) * width + x)];
      std::fill_n(pixel, 3, ink ? kLight : kDark);
    }
  }
}

}  // namespace samara
