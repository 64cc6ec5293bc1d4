#include "view/terminal_view.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace samara {
namespace {

// 2 x 2 pixels in 2 x 1 characters: written by hand
TEST(TerminalViewTest, TwoPixelsInEachCharacter) {
  const std::vector<uint8_t> rgb = {255, 0, 0, /**/ 255, 0, 0,  //
                                    0,   0, 9, /**/ 0,   8, 0};
  EXPECT_EQ(HalfBlocks(rgb, {.width = 2, .height = 2}, 2, 1),
            "\x1b[38;2;255;0;0m\x1b[48;2;0;0;9m\u2580"
            "\x1b[48;2;0;8;0m\u2580\x1b[0m\n");
}

TEST(TerminalViewTest, ShrinksByTheMean) {
  // 4 x 4 into 1 x 1 character: the upper half holds 0 and 100, the lower one 200
  std::vector<uint8_t> rgb;
  for (int i = 0; i < 16; ++i)
    for (int c = 0; c < 3; ++c) rgb.push_back(i < 4 ? 0 : i < 8 ? 100 : 200);
  const std::string text = HalfBlocks(rgb, {.width = 4, .height = 4}, 2, 1);
  EXPECT_NE(text.find("38;2;50;50;50m"), std::string::npos) << text;
  EXPECT_NE(text.find("48;2;200;200;200m"), std::string::npos) << text;
}

TEST(TerminalViewTest, FitsAndKeepsProportions) {
  const std::vector<uint8_t> rgb(size_t{3} * 160 * 210, 7);
  const auto count = [](const std::string& text, const std::string& what) {
    int n = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
  };
  struct Case {
    double aspect;
    int columns, rows, expected_columns, expected_rows;
  };
  // square pixels in 40 rows: 80 high, 80 * 160 / 210 = 60 wide; 4:3 in 40 columns: 30 high
  for (const Case& c : {Case{1.0, 200, 40, 60, 40}, Case{1.75, 40, 100, 40, 15}}) {
    const std::string text =
        HalfBlocks(rgb, {.width = 160, .height = 210, .pixel_aspect = c.aspect}, c.columns, c.rows);
    EXPECT_EQ(count(text, "\n"), c.expected_rows);
    EXPECT_EQ(count(text, "\u2580"), c.expected_rows * c.expected_columns);
  }
}

TEST(TerminalViewTest, GivesTheScreenBack) {
  std::FILE* file = std::tmpfile();
  {
    TerminalView view(file);
    view.Show(std::vector<uint8_t>(12, 1), {.width = 2, .height = 2}, "score 1\x1b[2J");
  }
  std::rewind(file);
  std::string text(1 << 16, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  EXPECT_TRUE(text.ends_with("\x1b[?25h\x1b[?1049l"));
  EXPECT_NE(text.find("score 1\\x1b[2J"), std::string::npos) << "captions cannot steer";
}

}  // namespace
}  // namespace samara
