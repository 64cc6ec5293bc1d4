#include "view/progress.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/log.h"

namespace samara {
namespace {

ProgressState Example() {
  ProgressState s;
  s.title = "atari/deep-ga-desktop, frostbite, seed 1";
  s.generation = 12;
  s.generations = 30;
  s.frames = 3'210'000;
  s.seconds = 300;
  s.phase = "population";
  s.phase_done = 50;
  s.phase_total = 100;
  s.stages = {{"decode", 0.05}, {"inference", 0.2}, {"environment", 0.75}};
  s.best = 1230;
  s.elite = 840.5;
  s.respawns = 2;
  s.last_seconds = {{"population", 18.24}, {"validation", 125}, {"between", 0.0421}};
  s.pace = GenerationPace{.before = {.seconds = 143, .frames = 280'000, .episodes = 160},
                          .now = {.seconds = 9, .frames = 140'000, .episodes = 50},
                          .episodes_total = 160};
  return s;
}

ProgressState Learning() {
  ProgressState s;
  s.title = "pong-vtrace, atari/Pong, nature, seed 1";
  s.step_name = "update";
  s.generation = 736;
  s.frames = 236'000;
  s.frames_budget = 300'000;
  s.seconds = 10;
  s.stages = {{"environment", 0.33}, {"inference", 0.47}, {"learner", 0.97}};
  s.stages_title = "utilization: ";
  s.numbers = {{"return", "-20.1", true},      {"loss", "28.1"},     {"entropy", "0.587", true},
               {"explained variance", "0.37"}, {"lag", "3.3", true}, {"queue", "48"},
               {"rows a batch", "23.3"}};
  s.random = -20.7;
  return s;
}

std::string Join(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += line + "\n";
  return text;
}

size_t CodePoints(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string ReadAll(std::FILE* file) {
  std::rewind(file);
  std::string text(1 << 16, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  return text;
}

TEST(ProgressTest, ShowsEverything) {
  const std::string text = Join(ProgressLines(Example(), 9812, 100, false));
  for (const char* part :
       {"frostbite", "generation 12 of 30", "3.21M frames", "9,812 frames/s", "elapsed 5:00 min",
        "left", "2 respawns", "population", "50 of 100", "best 1,230", "elite 840.5",
        "environment 75 % (bottleneck)", "inference 20 %", "last: population 18.2 s",
        "validation 2:05 min", "between 0.04 s"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  EXPECT_EQ(text.find("random"), std::string::npos) << "unknown numbers are not shown";
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << "no colours unless asked";
}

// each stage's share is of its own time: they add up to more than the whole
TEST(ProgressTest, ShowsALearningRun) {
  for (int columns : {160, 30}) {
    const std::string text = Join(ProgressLines(Learning(), 23'184, columns, false));
    for (const char* part :
         {"update 736", "236k of 300k frames", "23,184 frames/s", "3 s left", "random policy -20.7",
          "return -20.1", "loss 28.1", "entropy 0.587", "explained variance 0.37", "lag 3.3",
          "queue 48", "rows a batch 23.3", "utilization: environment 33 %", "inference 47 %",
          "learner 97 % (bottleneck)"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
    EXPECT_EQ(text.find("generation"), std::string::npos);
  }
  EXPECT_EQ(ProgressPlainLine(Learning(), 23'184),
            "update 736, 236k of 300k frames, 23,184 frames/s, return -20.1, entropy 0.587, lag "
            "3.3, bottleneck learner, 10 s, 3 s left");
}

TEST(ProgressTest, ShowsTheCourseOfTheScore) {
  std::FILE* file = std::tmpfile();
  int calls = 0;
  {
    Progress progress(
        [&] {
          ProgressState state = Learning();
          state.score = std::min(calls++, 1);
          state.frames += calls;
          return state;
        },
        file, {.interval_s = 0.02, .mode = ProgressOptions::Mode::kTerminal});
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  const std::string text = ReadAll(file);
  std::fclose(file);
  EXPECT_NE(text.find("trend"), std::string::npos) << text;
  EXPECT_NE(text.find("\u2581\u2588"), std::string::npos) << text;
  EXPECT_EQ(ProgressPlainLine(Learning(), 1).find("trend"), std::string::npos);
}

// However often a generation is drawn, and though its number changes after its score.
TEST(ProgressTest, TheCourseHasAMarkForEachGeneration) {
  std::FILE* file = std::tmpfile();
  std::atomic<int> calls = 0;
  {
    Progress progress(
        [&] {
          ProgressState state;
          state.pace.emplace();
          const int call = std::min(calls++, 17);
          state.scored = 1 + std::min(call, 15) / 4;
          state.score = static_cast<double>(state.scored);
          state.generation = 1 + (call + 2) / 4;
          return state;
        },
        file, {.interval_s = 0.005, .mode = ProgressOptions::Mode::kTerminal});
    while (calls < 20) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const std::string text = ReadAll(file);
  std::fclose(file);
  EXPECT_NE(text.substr(text.rfind("trend")).find("\u2581\u2583\u2586\u2588\x1b"),
            std::string::npos)
      << text;
}

// of the last line that begins with `name`
std::string LineOf(const std::vector<std::string>& lines, const std::string& name) {
  std::string found;
  for (const std::string& line : lines)
    if (line.starts_with(name)) found = line;
  return found;
}

// 10 s have passed and 64,000 of 300,000 frames at 3,200 a second are left, which is 20 s more
TEST(ProgressTest, ABarShowsTheWholeRunInTime) {
  EXPECT_DOUBLE_EQ(FractionDone(Learning(), 3200), 1.0 / 3);
  const std::string line = LineOf(ProgressLines(Learning(), 3200, 60, false), "run");
  EXPECT_NE(line.find(" 33 %, 20 s left"), std::string::npos) << line;
  ProgressState unbounded = Learning();
  unbounded.frames_budget = 0;
  EXPECT_TRUE(std::isnan(FractionDone(unbounded, 3200)));
  EXPECT_EQ(LineOf(ProgressLines(unbounded, 3200, 60, false), "run"), "");
}

TEST(ProgressTest, ShowsTheScoresHighestPoint) {
  std::FILE* file = std::tmpfile();
  int calls = 0;
  {
    Progress progress(
        [&] {
          ProgressState state = Learning();
          state.score = std::vector<double>{3, 7, 5, 5}[static_cast<size_t>(std::min(calls++, 3))];
          state.frames += calls;
          return state;
        },
        file, {.interval_s = 0.02, .mode = ProgressOptions::Mode::kTerminal});
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  const std::string text = ReadAll(file);
  std::fclose(file);
  EXPECT_NE(text.substr(text.rfind("trend")).find("7"), std::string::npos) << text;
  EXPECT_NE(text.substr(text.rfind("trend")).find("peak"), std::string::npos) << text;
}

TEST(ProgressTest, CourseAndPeakGoOnAfterAResume) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(
        [] {
          ProgressState state = Learning();
          state.score = 5;
          return state;
        },
        file, {.mode = ProgressOptions::Mode::kJson, .earlier = {1, 9, 3}});
  }
  const std::string text = ReadAll(file);
  std::fclose(file);
  const auto line = nlohmann::json::parse(text.substr(0, text.find('\n'))).at("progress");
  EXPECT_EQ(line.at("peak"), 9);
  EXPECT_FALSE(line.at("trend").get<std::string>().empty());
}

TEST(ProgressTest, OtherProgramsReadTheStateAsJson) {
  const auto line = nlohmann::json::parse(ProgressJsonLine(Learning(), 3200)).at("progress");
  EXPECT_EQ(line.at("step"), "update 736");
  EXPECT_EQ(line.at("left"), 20);
  EXPECT_NEAR(line.at("fraction").get<double>(), 1.0 / 3, 1e-12);
  EXPECT_TRUE(line.at("score").is_null());
  std::FILE* file = std::tmpfile();
  { Progress progress(Learning, file, {.mode = ProgressOptions::Mode::kJson}); }
  const std::string text = ReadAll(file);
  std::fclose(file);
  EXPECT_TRUE(text.starts_with("{\"progress\":{")) << text;
}

// half of the bar's 40 columns are full
TEST(ProgressTest, BarShowsTheFraction) {
  const std::string text = LineOf(ProgressLines(Example(), 1, 100, false), "population");
  std::string full;
  for (int i = 0; i < 20; ++i) full += "\u2588";
  EXPECT_NE(text.find(full + " "), std::string::npos) << text;
  EXPECT_EQ(text.find(full + "\u2588"), std::string::npos) << text;
}

TEST(ProgressTest, NoLineIsWiderThanTheTerminal) {
  for (int columns : {1, 7, 20, 33, 60, 200})
    for (const ProgressState& state : {Example(), Learning()})
      for (const std::string& line : ProgressLines(state, 9812, columns, false))
        EXPECT_LE(CodePoints(line), static_cast<size_t>(columns)) << line;
}

TEST(ProgressTest, NarrowTerminalsLoseNothing) {
  const std::string text = Join(ProgressLines(Example(), 9812, 30, false));
  for (const char* part : {"9,812 frames/s", "left", "2 respawns", "environment 75 % (bottleneck)"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST(ProgressTest, ForeignTextCannotSteerTheTerminal) {
  ProgressState s = Example();
  s.title = "a\x1b[2J\nb";
  const std::string first = ProgressLines(s, 1, 80, false)[0];
  EXPECT_EQ(first, "a\\x1b[2J\\x0ab");
}

TEST(ProgressTest, EmptyStateIsFine) {
  EXPECT_FALSE(ProgressLines({}, 0, 80, true).empty());
  EXPECT_NE(ProgressPlainLine({}, 0).find("generation 0"), std::string::npos);
}

TEST(ProgressTest, TimeLeftIsThatOfTheFirstBudget) {
  ProgressState s;
  EXPECT_TRUE(std::isnan(SecondsLeft(s, 100)));
  s.frames = 400;
  s.frames_budget = 1000;
  EXPECT_DOUBLE_EQ(SecondsLeft(s, 100), 6);
  s.seconds = 10;
  s.seconds_budget = 13;
  EXPECT_DOUBLE_EQ(SecondsLeft(s, 100), 3);
}

TEST(ProgressTest, UpdatesAreABudgetToo) {
  ProgressState s;
  s.step_name = "update";
  s.generations = 50, s.seconds = 8;
  EXPECT_TRUE(std::isnan(SecondsLeft(s, 100))) << "no update is measured";
  s.generation = 20;
  EXPECT_DOUBLE_EQ(SecondsLeft(s, 100), 12);
  EXPECT_DOUBLE_EQ(FractionDone(s, 100), 0.4);
  s.frames = 400, s.frames_budget = 1000;
  EXPECT_DOUBLE_EQ(SecondsLeft(s, 100), 6) << "the first budget counts";
  s.generation = 50;
  EXPECT_DOUBLE_EQ(SecondsLeft(s, 100), 0);
}

// a generation is never cut: a budget that is reached in its middle is spent at its end
TEST(ProgressTest, TimeLeftIsThatOfWholeGenerations) {
  ProgressState s;
  s.generation = 1;
  s.frames_budget = 200'000;
  s.pace.emplace();
  EXPECT_TRUE(std::isnan(SecondsLeft(s, 4000))) << "nothing is measured";
  s.pace->episodes_total = 60;
  s.pace->now = {.seconds = 2, .frames = 10'000, .episodes = 2};
  EXPECT_TRUE(std::isnan(SecondsLeft(s, 4000))) << "too little is measured";
  // beyond the budget in the first generation: a third of its episodes is left
  s.frames = 320'000;
  s.pace->now = {.seconds = 80, .frames = 320'000, .episodes = 40};
  EXPECT_DOUBLE_EQ(SecondsLeft(s, 4000), 40);
  EXPECT_NE(ProgressPlainLine(s, 4000).find("320k of 200k frames, this generation is the last"),
            std::string::npos);
  // a generation takes 480k frames and 120 s: two more after this one
  s.frames_budget = 1'000'000;
  EXPECT_DOUBLE_EQ(SecondsLeft(s, 4000), 40 + 2 * 120);
  EXPECT_EQ(ProgressPlainLine(s, 4000).find("the last"), std::string::npos);
  s.generations = 2;
  EXPECT_DOUBLE_EQ(SecondsLeft(s, 4000), 40 + 120);
  s.seconds = 80, s.seconds_budget = 100;
  EXPECT_DOUBLE_EQ(SecondsLeft(s, 4000), 40);
  // what the generation before took counts too: 100 episodes in 240 s
  s.seconds_budget = 0, s.generations = 5, s.frames_budget = 0;
  s.pace->before = {.seconds = 160, .frames = 0, .episodes = 60};
  EXPECT_DOUBLE_EQ(SecondsLeft(s, 4000), (1.0 / 3 + 4) * 144);
  // between two generations nothing is half done
  s.pace->now = {}, s.pace->episodes_total = 0, s.generation = 4;
  EXPECT_DOUBLE_EQ(SecondsLeft(s, 4000), 160);
}

TEST(ProgressTest, PlainLinesElsewhere) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(Example, file, {.interval_plain_s = 0.05});
    progress.Print("a line of the log");
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
  }
  const std::string text = ReadAll(file);
  std::fclose(file);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.rfind("a line of the log\n", 0), 0u);
  EXPECT_GE(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_NE(text.find("generation 12 of 30, population 50/100, 3.21M frames"), std::string::npos);
  EXPECT_NE(
      text.find(
          ", last generation population 18.2 s + validation 2:05 min + between 0.04 s, 2 respawns"),
      std::string::npos)
      << text;
}

TEST(ProgressTest, LogLinesAppearAboveTheDisplay) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(Example, file, {.interval_s = 60, .mode = ProgressOptions::Mode::kTerminal});
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    LogWarning("actor 3 died");
  }
  const std::string text = ReadAll(file);
  std::fclose(file);
  // drawn once, then back up over all its lines, the warning, the display again, and at the end
  const size_t lines = ProgressLines(Example(), 10'700, 79, false).size();
  const size_t warning =
      text.find("\x1b[" + std::to_string(lines) + "A\rsamara: warning: actor 3 died\x1b[K\n");
  ASSERT_NE(warning, std::string::npos) << text;
  const std::string after = text.substr(warning);
  EXPECT_NE(after.find("generation 12"), std::string::npos);
  EXPECT_TRUE(text.ends_with("\x1b[J"));
}

TEST(ProgressTest, LogLinesAreCutAtTheEdgeAndWarningsAreNot) {
  const std::string wide(100, 'x');
  std::FILE* file = std::tmpfile();
  {
    Progress progress(Example, file, {.interval_s = 60, .mode = ProgressOptions::Mode::kTerminal});
    LogInfo(wide);
    LogWarning(wide);
  }
  const std::string text = ReadAll(file);
  std::fclose(file);
  EXPECT_NE(text.find(std::string(78, 'x') + "\u2026"), std::string::npos) << text;
  EXPECT_NE(text.find("samara: warning: " + wide), std::string::npos) << text;
}

TEST(ProgressTest, StopsAtOnce) {
  std::FILE* file = std::tmpfile();
  const SteadyTime start = Now();
  { Progress progress(Example, file, {.interval_plain_s = 30}); }
  EXPECT_LT(SecondsSince(start), 5);
  std::fclose(file);
}

}  // namespace
}  // namespace samara
