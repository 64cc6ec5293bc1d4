#include "view/text_line.h"

#include <gtest/gtest.h>

namespace samara {
namespace {

TEST(TextLineTest, CutsAtTheEdgeByColumnsNotBytes) {
  EXPECT_EQ(CutLine("frames", 6), "frames");
  EXPECT_EQ(CutLine("frames", 5), "fram\u2026");
  EXPECT_EQ(CutLine("\u2588\u2588\u2588", 3), "\u2588\u2588\u2588");
  EXPECT_EQ(CutLine("\u2588\u2588\u2588", 2), "\u2588\u2026");
}

TEST(TextLineTest, ColoursTakeNoColumns) {
  TextLine line(5, /*colour=*/true);
  line.Add("best", TextLine::kBold);
  line.Add("500");
  const std::string text = line.Take();
  EXPECT_EQ(text, "\x1b[1mbest\x1b[0m5");
  EXPECT_EQ(VisibleWidth(text), 5);
}

TEST(TextLineTest, ABarLeavesTheRoomThatIsReserved) {
  for (const int reserve : {0, 7, 12}) {
    TextLine line(20, /*colour=*/false);
    line.AddBar(0.5, reserve);
    EXPECT_EQ(line.room(), reserve);
  }
  TextLine narrow(5, /*colour=*/false);
  narrow.AddBar(0.5, 0);  // three columns between its ends are no bar
  EXPECT_EQ(narrow.room(), 5);
}

TEST(FoldedTest, BreaksBetweenWords) {
  EXPECT_EQ(Folded("  cost  12 frames, 7 words\n  run   a/b\n", 17, 8),
            "  cost  12\n        frames, 7\n        words\n  run   a/b\n");
  EXPECT_EQ(Folded("  go  train 'a b c' k=1 j=2\n", 20, 6, " \\"),
            "  go  train \\\n      'a b c' k=1 \\\n      j=2\n");
  EXPECT_EQ(Folded("  run   a/long/path/of/a/run x", 12, 8),
            "  run   a/long/path/of/a/run\n        x");
  EXPECT_EQ(Folded("short\n", 80, 8), "short\n");
}

TEST(TextFlowTest, BreaksBetweenItems) {
  TextFlow flow(12, /*colour=*/false);
  flow.Item("best", "500");
  flow.Item("", "30 left");
  std::vector<std::string> lines;
  flow.AppendTo(lines);
  EXPECT_EQ(lines, (std::vector<std::string>{"best 500", "30 left"}));
}

}  // namespace
}  // namespace samara
