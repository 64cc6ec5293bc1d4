#include "view/text_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace samara {
namespace {

constexpr int kBarWidthMax = 40, kBarWidthMin = 4;

bool Continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

std::string Bar(double fraction, int width) {
  static constexpr const char* kEighths[] = {"",       "\u258f", "\u258e", "\u258d",
                                             "\u258c", "\u258b", "\u258a", "\u2589"};
  const int eighths = static_cast<int>(std::lround(std::clamp(fraction, 0.0, 1.0) * width * 8));
  std::string bar;
  for (int i = 0; i < eighths / 8; ++i) bar += "\u2588";
  bar += kEighths[eighths % 8];
  for (int i = (eighths + 7) / 8; i < width; ++i) bar += ' ';
  return bar;
}

}  // namespace

void TextLine::Add(std::string_view text, std::string_view style) {
  if (room_ <= 0 || text.empty()) return;
  const bool styled = colour_ && !style.empty();
  if (styled) text_ += fmt::format("\x1b[{}m", style);
  for (size_t i = 0; i < text.size();) {
    size_t next = i + 1;
    while (next < text.size() && Continues(text[next])) ++next;
    if (room_-- <= 0) break;
    text_ += text.substr(i, next - i);
    i = next;
  }
  room_ = std::max(room_, 0);
  if (styled) text_ += "\x1b[0m";
}

void TextLine::AddBar(double fraction, int reserve) {
  const int width = std::min(kBarWidthMax, room_ - reserve - 2);
  if (width < kBarWidthMin) return;
  Add("\u2595", kDim);
  Add(Bar(fraction, width), kGood);
  Add("\u258f", kDim);
}

void TextFlow::Item(std::string_view name, std::string_view value, std::string_view style) {
  const int width = VisibleWidth(name) + VisibleWidth(value) + (name.empty() ? 0 : 1);
  if (!empty_ && width + 3 > line_.room()) {
    lines_.push_back(line_.Take());
    line_ = TextLine(columns_, colour_);
    empty_ = true;
  }
  if (!empty_) line_.Add(" \u00b7 ", TextLine::kDim);
  line_.Add(name, TextLine::kDim);
  if (!name.empty()) line_.Add(" ");
  line_.Add(value, style);
  empty_ = false;
}

void TextFlow::AppendTo(std::vector<std::string>& lines) {
  if (!empty_) lines_.push_back(line_.Take());
  for (std::string& line : lines_) lines.push_back(std::move(line));
}

int VisibleWidth(std::string_view line) {
  int width = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') {
      while (i < line.size() && line[i] != 'm') ++i;
    } else if (!Continues(line[i])) {
      ++width;
    }
  }
  return width;
}

namespace {

// The end of a word that begins at `at`.
size_t EndOfWord(std::string_view text, size_t at) {
  bool quoted = false;
  for (; at < text.size() && text[at] != '\n' && (quoted || text[at] != ' '); ++at)
    if (text[at] == '\'') quoted = !quoted;
  return at;
}

}  // namespace

std::string Folded(std::string_view text, int columns, int indent, std::string_view mark) {
  std::string folded;
  int width = 0;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '\n') {
      folded += text[at++];
      width = 0;
      continue;
    }
    const size_t word = std::min(text.find_first_not_of(' ', at), text.size());
    const size_t end = EndOfWord(text, word);
    if (width > indent &&
        width + VisibleWidth(text.substr(at, end - at)) + VisibleWidth(mark) > columns) {
      folded.append(mark).append("\n").append(static_cast<size_t>(indent), ' ');
      width = indent;
      at = word;
    }
    folded += text.substr(at, end - at);
    width += VisibleWidth(text.substr(at, end - at));
    at = end;
  }
  return folded;
}

std::string CutLine(std::string_view line, int columns) {
  if (VisibleWidth(line) <= columns) return std::string(line);
  TextLine cut(columns - 1, /*colour=*/false);
  cut.Add(line);
  return cut.Take() + "\u2026";
}

}  // namespace samara
