#include "view/runs_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "view/text_line.h"

namespace samara {
namespace {

using Phase = RunState::Phase;

// Two at once: seed 0 is done after 10 s, seeds 1 and 2 run, 3 and 4 wait.
RunsState FiveSeeds() {
  RunsState s{
      .title = "cartpole-ga: seeds 0..4", .kind = "seeds", .seconds = 14, .at_once = 2, .runs = {}};
  s.runs = {{.name = "seed 0", .phase = Phase::kDone, .seconds = 10, .score = 500},
            {.name = "seed 1",
             .phase = Phase::kRunning,
             .step = "generation 12 of 30",
             .fraction = 0.4,
             .seconds = 4,
             .left = 6,
             .score = 231.5},
            {.name = "seed 2", .phase = Phase::kRunning, .fraction = 0.8, .seconds = 8, .left = 2},
            {.name = "seed 3"},
            {.name = "seed 4"}};
  return s;
}

std::string OneText(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += line + "\n";
  return text;
}

// Seed 3 begins where seed 2 ends, after 2 s, and seed 4 where seed 1 does, after 6 s: 16 s in all.
TEST(RunsViewTest, TimeLeftIsThatOfTheLastRun) {
  EXPECT_DOUBLE_EQ(SecondsLeft(FiveSeeds()), 16);
  RunsState s = FiveSeeds();
  s.at_once = 3;  // seed 3 begins now, seed 4 after 2 s
  EXPECT_DOUBLE_EQ(SecondsLeft(s), 12);
  s.runs.resize(3);
  EXPECT_DOUBLE_EQ(SecondsLeft(s), 6);
  s.runs.resize(1);
  EXPECT_DOUBLE_EQ(SecondsLeft(s), 0);
  s.runs[0] = {.name = "seed 0"};
  EXPECT_TRUE(std::isnan(SecondsLeft(s))) << "nothing is measured";
}

TEST(RunsViewTest, ShowsEveryRun) {
  const std::string text = OneText(RunsLines(FiveSeeds(), 110, false));
  for (const char* part : {"cartpole-ga: seeds 0..4", "1 of 5 seeds done", "2 at once",
                           "elapsed 14 s", "left 16 s", "100 % score 500 \u00b7 done in 10 s",
                           " 40 % generation 12 of 30 \u00b7 score 231.5", "6 s left", "waiting"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 2 + 5);
  EXPECT_EQ(RunsPlainLine(FiveSeeds()),
            "1 of 5 seeds done, seed 1  40 % score 231.5, seed 2  80 %, 14 s, 16 s left");
}

TEST(RunsViewTest, OfManyThoseThatRunHaveALine) {
  RunsState s = FiveSeeds();
  s.runs.resize(100);
  EXPECT_EQ(RunsLines(s, 100, false).size(), 2U + 2);
}

TEST(RunsViewTest, LongNamesHaveWhatRoomThereIs) {
  RunsState s = FiveSeeds();
  s.runs[1].name = "learning_rate=0.0003 epochs=10 seed 1";
  const auto line = [&s](int columns) {
    const std::vector<std::string> lines = RunsLines(s, columns, false);
    return lines[lines.size() - s.runs.size() + 1];
  };
  EXPECT_TRUE(line(110).starts_with(s.runs[1].name + " \u2595")) << line(110);
  EXPECT_TRUE(line(80).starts_with("\u2026te=0.0003 epochs=10 seed 1 ")) << line(80);
  EXPECT_NE(line(80).find("generation 12 of 30"), std::string::npos) << line(80);
  EXPECT_TRUE(line(30).starts_with("\u20260 seed 1 ")) << line(30);
}

TEST(RunsViewTest, NoLineIsWiderThanTheTerminal) {
  for (const int columns : {1, 7, 20, 40, 79, 160})
    for (const std::string& line : RunsLines(FiveSeeds(), columns, true))
      EXPECT_LE(VisibleWidth(line), columns) << line;
}

}  // namespace
}  // namespace samara
