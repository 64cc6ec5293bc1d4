// Lines of text that know their width on a terminal: cut at its edge, broken between items, bars.
// One code point counts as one column: all texts here are letters and block elements.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace samara {

// A line under construction, cut off at `columns`.
class TextLine {
 public:
  TextLine(int columns, bool colour) : room_(columns), colour_(colour) {}
  // `style` is an SGR parameter such as "1" or "2;32"; empty for none.
  void Add(std::string_view text, std::string_view style = {});
  // A bar of 40 columns at most, between thin lines; left out where there is room for fewer than
  // four. `reserve` columns stay free behind it.
  void AddBar(double fraction, int reserve);
  int room() const { return room_; }
  std::string Take() { return std::move(text_); }

  static constexpr std::string_view kDim = "2", kBold = "1", kGood = "32", kBottleneck = "33";

 private:
  int room_;
  bool colour_;
  std::string text_;
};

// Items separated by dots, on as many lines as they need.
class TextFlow {
 public:
  TextFlow(int columns, bool colour) : columns_(columns), colour_(colour), line_(columns, colour) {}
  // "name value", either may be empty.
  void Item(std::string_view name, std::string_view value, std::string_view style = {});
  void AppendTo(std::vector<std::string>& lines);

 private:
  const int columns_;
  const bool colour_;
  bool empty_ = true;
  TextLine line_;
  std::vector<std::string> lines_;
};

// Columns that a line takes on the screen: code points outside escape sequences.
int VisibleWidth(std::string_view line);
// `text` with lines of at most `columns`, broken at spaces outside '...': each part but the last of
// a line ends in `mark`, each but the first begins with `indent` spaces. A longer word stays whole.
std::string Folded(std::string_view text, int columns, int indent, std::string_view mark = {});
// The first `columns` of a line without escape sequences, the last of them an ellipsis where
// something was cut off.
std::string CutLine(std::string_view line, int columns);

}  // namespace samara
