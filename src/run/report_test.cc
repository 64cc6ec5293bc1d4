#include "run/report.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <regex>

#include "run/published_scores.h"
#include "run/run_data.h"
#include "run/summary.h"

namespace samara {
namespace {

class ReportTest : public testing::Test {
 protected:
  ReportTest() : root_(Path(testing::TempDir()) / ("report_test_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(root_);
  }
  ~ReportTest() override { std::filesystem::remove_all(root_); }

  Path Run(const std::string& name, const std::string& metrics,
           const std::string& config = "[run]\nseed = 7\n[env]\ngame = \"frostbite\"\n") {
    const Path folder = root_ / name;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "config.toml") << config;
    std::ofstream(folder / "metrics.jsonl") << metrics;
    return folder;
  }
  std::string Report(std::vector<Path> runs) {
    const Status status = WriteReport(runs, root_ / "report.html");
    EXPECT_TRUE(status.ok()) << status.message();
    return ReadFile(root_ / "report.html").ValueOrThrow();
  }

  Path root_;
};

constexpr const char* kTwoGenerations =
    R"({"event":"random_policy","returns":[60,70],"mean":65,"median":65}
{"generation":1,"frames":1000,"seconds":10,"fitness_max":100,"elite_validation_mean":90}
{"generation":2,"frames":2000,"seconds":20,"fitness_max":120,"elite_validation_mean":95,"elite_test_returns":[80,100,120]}
{"event":"finished","elite_mean":100,"random_mean":65,"frames":2000,"seconds":20}
)";

TEST_F(ReportTest, ReadsARun) {
  const Path folder = Run("a", kTwoGenerations);
  std::ofstream(folder / "run.json")
      << R"({"command":["samara","train","atari/deep-ga","ga.population=5"],"seed":7})";
  const auto run = LoadRun(folder);
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->name, "a");
  EXPECT_EQ(run->preset, "atari/deep-ga");
  EXPECT_EQ(run->game, "frostbite");
  EXPECT_EQ(run->seed, "7");
  EXPECT_EQ(run->generations.size(), 2u);
  EXPECT_DOUBLE_EQ(run->EliteMean(), 100);
  EXPECT_DOUBLE_EQ(run->RandomMean(), 65);
  EXPECT_EQ(run->Column("frames"), (std::vector<double>{1000, 2000}));
  EXPECT_TRUE(std::isnan(run->Column("elite_test_mean")[0]));
}

// After a crash a generation is written again; the second line is the one that counts.
TEST_F(ReportTest, RepeatedGenerationsCountOnceAndTornTailsNotAtAll) {
  const auto run =
      LoadRun(Run("a",
                  "{\"generation\":1,\"frames\":10}\n{\"generation\":2,\"frames\":20}\n"
                  "{\"event\":\"resumed\",\"generation\":1}\n"
                  "{\"generation\":2,\"frames\":21}\n{\"generation\":3,\"fra"));
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->Column("frames"), (std::vector<double>{10, 21}));
  EXPECT_EQ(run->resumes, 1);
}

TEST_F(ReportTest, MissingAndDamagedRunsAreNamed) {
  const auto code = [&](const Path& folder) { return LoadRun(folder).status().code(); };
  EXPECT_EQ(code(root_ / "none"), Code::kNoInput);
  std::filesystem::create_directories(root_ / "hollow");
  EXPECT_EQ(code(root_ / "hollow"), Code::kNoInput);
  EXPECT_EQ(code(Run("line", "{\"generation\":1}\nnot json\n{\"generation\":2}\n")),
            Code::kBadData);
  EXPECT_NE(LoadRun(root_ / "line").status().message().find("line 2"), std::string::npos);
  EXPECT_EQ(code(Run("array", "[1,2]\n")), Code::kBadData);
  EXPECT_EQ(code(Run("toml", "", "= broken")), Code::kBadData);
  EXPECT_EQ(code(Run("deep", std::string(100'000, '[') + "\n")), Code::kBadData);
  const std::vector<Path> runs = {Run("good", kTwoGenerations), root_ / "none"};
  EXPECT_EQ(WriteReport(runs, root_ / "r.html").code(), Code::kNoInput);
  EXPECT_FALSE(std::filesystem::exists(root_ / "r.html"));
  EXPECT_EQ(WriteReport({}, root_ / "r.html").code(), Code::kUsage);
}

TEST_F(ReportTest, ShowsTheResultBesideRandomAndPublishedScores) {
  const std::string html = Report({Run("a", kTwoGenerations)});
  EXPECT_NE(html.find("<b>100</b>"), std::string::npos);
  EXPECT_NE(html.find("95 % interval 80 to 120"), std::string::npos);
  EXPECT_NE(html.find("<b>65</b>"), std::string::npos);
  EXPECT_NE(html.find("4,536"), std::string::npos) << "Deep GA on Frostbite after 1B frames";
  EXPECT_NE(html.find("<b>100 frames/s</b>"), std::string::npos);
  EXPECT_NE(html.find("115 d 17 h"), std::string::npos) << "a billion frames at 100 a second";
}

TEST_F(ReportTest, SaysHowTheEliteWasTestedAndWhatItCost) {
  const Path folder = Run("a",
                          R"({"generation":1,"frames":1000,"elite_test_returns":[80,100,120]}
{"generation":2,"frames":2000,"seconds":20}
)",
                          "[env]\ngame = \"frostbite\"\ntest_frames_max = 400000\n");
  std::ofstream(folder / "run.json") << R"({"environment":{"version":"ale-py 1, deepga 63bc"}})";
  const std::string living = Report({folder});
  for (const char* part : {"the elite after 1,000 frames, without random actions (epsilon 0), on 3 "
                           "fresh episodes of at most 400,000 frames.",
                           "<dd>ale-py 1, deepga 63bc</dd>",
                           "this run&#39;s elite<td class=\"n\">100 <small>[80, 120]</small>"})
    EXPECT_NE(living.find(part), std::string::npos) << part;
  EXPECT_EQ(living.find("core-second"), std::string::npos);

  std::ofstream(folder / "metrics.jsonl", std::ios::app)
      << R"({"event":"finished","elite_returns":[80,90],"frames":2000,"seconds":20,)"
      << R"("frames_per_core_second":50})" << '\n';
  const std::string finished = Report({folder});
  for (const char* part : {"after 2,000 frames, ", "on 2 fresh episodes", "50 per core-second"})
    EXPECT_NE(finished.find(part), std::string::npos) << part;
}

// Nothing may be fetched: no address outside the page but the SVG namespace.
TEST_F(ReportTest, IsSelfContainedAndReproducible) {
  const Path a = Run("a", kTwoGenerations), b = Run("b", kTwoGenerations);
  const std::string html = Report({a, b});
  EXPECT_EQ(html, Report({a, b}));
  const std::string without_namespace =
      std::regex_replace(html, std::regex("http://www.w3.org/2000/svg"), "");
  for (const char* outside : {"http:", "https:", "//", "<link", "<script", "@import", "url("})
    EXPECT_EQ(without_namespace.find(outside), std::string::npos) << outside;
}

TEST_F(ReportTest, EveryTextIsEscaped) {
  const std::string evil = "<script>alert(1)</script>\\\"'&";
  const Path folder = Run("<img src=x onerror=alert(1)>", kTwoGenerations,
                          "[run]\nseed = 1\npreset = \"" + evil + "\"\n[env]\ngame = \"" + evil +
                              "\"\n\"<b>key\" = \"" + evil + "\"\n");
  std::ofstream(folder / "run.json") << "{\"cpu\":\"" + evil + "\",\"created\":\"<b>\"}";
  const std::string html = Report({folder, Run("b", kTwoGenerations)});
  for (const char* raw : {"<script", "<img", "<b>key", "\"'&"})
    EXPECT_EQ(html.find(raw), std::string::npos) << raw;
}

TEST_F(ReportTest, LittleOrStrangeDataIsFine) {
  const Path none = Run("none", ""), one = Run("one", "{\"generation\":1,\"fitness_max\":5}\n");
  const Path odd = Run("odd",
                       "{\"generation\":1,\"frames\":\"many\",\"fitness_max\":null,"
                       "\"elite_test_returns\":[null,\"x\"]}\n{\"generation\":\"two\"}\n"
                       "{\"event\":5}\n{\"event\":\"finished\"}\n",
                       "");
  for (const auto& runs : {std::vector<Path>{none}, {one}, {odd}, {none, one, odd}}) {
    const std::string html = Report(runs);
    EXPECT_TRUE(html.ends_with("</html>\n"));
    EXPECT_EQ(std::regex_replace(html, std::regex("ui,|nance"), "").find(">nan<"),
              std::string::npos);
  }
  EXPECT_NE(Report({none}).find("No generation has been completed yet"), std::string::npos);
}

// Two seeds are one group of two runs; another population is another group, told apart by its key.
TEST_F(ReportTest, RunsThatDifferOnlyInSeedAreOneGroup) {
  const auto config = [](int seed, int population, int actors) {
    return "[run]\nseed = " + std::to_string(seed) + "\n[env]\ngame = \"frostbite\"\n[ga]\n" +
           "population = " + std::to_string(population) +
           "\n[fleet]\nactors = " + std::to_string(actors) + "\n";
  };
  const std::string other =
      std::regex_replace(kTwoGenerations, std::regex("80,100,120"), "200,220");
  const std::string html =
      Report({Run("a", kTwoGenerations, config(1, 10, 1)), Run("b", other, config(2, 10, 2)),
              Run("c", kTwoGenerations, config(1, 20, 1))});
  // runs' means are 100 and 210: mean 155, and resampling two runs gives [100, 210]
  EXPECT_NE(html.find("frostbite, ga.population=10<td class=\"n\">2<"), std::string::npos);
  EXPECT_NE(html.find("155 <small>[100, 210]</small>"), std::string::npos);
  EXPECT_NE(html.find("frostbite, ga.population=20<td class=\"n\">1<"), std::string::npos);
  EXPECT_NE(html.find("fewer than 5 seeds"), std::string::npos);
}

TEST_F(ReportTest, SmallVideosAreEmbedded) {
  const Path folder = Run("a", kTwoGenerations);
  std::filesystem::create_directories(folder / "videos");
  std::ofstream(folder / "videos/elite.mp4") << "foobar!";  // base64 by RFC 4648: Zm9vYmFyIQ==
  EXPECT_NE(Report({folder}).find("data:video/mp4;base64,Zm9vYmFyIQ==\""), std::string::npos);
}

TEST_F(ReportTest, LearningCurveIsAPicture) {
  const Path folder = Run("a", kTwoGenerations);
  ASSERT_TRUE(WriteLearningCurve(folder, folder / "learning_curve.svg").ok());
  const std::string svg = ReadFile(folder / "learning_curve.svg").ValueOrThrow();
  EXPECT_TRUE(svg.starts_with("<svg xmlns="));
  EXPECT_NE(svg.find("elite, validation"), std::string::npos);
}

// Agent57's paper and Such et al. 2017
TEST(PublishedScoresTest, KnownRows) {
  ASSERT_TRUE(ScaleOfGame("frostbite"));
  EXPECT_DOUBLE_EQ(ScaleOfGame("frostbite")->random, 65.2);
  EXPECT_DOUBLE_EQ(ScaleOfGame("frostbite")->human, 4334.7);
  EXPECT_DOUBLE_EQ(ScaleOfGame("frostbite")->Normalised(4334.7), 1);
  EXPECT_FALSE(ScaleOfGame("CartPole-v1"));
  EXPECT_TRUE(PublishedScores("amidar").empty()) << "its row was not compared with the source";
  EXPECT_EQ(PublishedScores("frostbite").size(), 11u);
}

TEST(SummaryTest, SaysWhatTheRunWasWorth) {
  const std::string text = FinalSummary({{"elite_returns", {90, 110, 100}},
                                         {"random_returns", {10, 20}},
                                         {"frames", 2'000'000},
                                         {"generation", 12},
                                         {"seconds", 100},
                                         {"cores", 2},
                                         {"video", "runs/a/videos/elite.mp4"},
                                         {"run", "runs/a"}});
  // 20,000 frames/s on two cores; 1e9 / 20,000 = 50,000 s
  for (const char* part :
       {"100 on 3 fresh episodes (95 % interval 90 to 110, median 100)", "15 on 2 episodes",
        "the elite is better by 85", "2,000,000 in 12 generations and 1:40 min",
        "10,000 frames per core-second", "13:53:20 h", "runs/a/videos/elite.mp4"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST(SummaryTest, SaysWhenEliteAndRandomCannotBeToldApart) {
  EXPECT_NE(FinalSummary({{"elite_returns", {1, 5, 9}}, {"random_returns", {2, 4, 6}}})
                .find("not told apart"),
            std::string::npos);
  EXPECT_EQ(FinalSummary(nlohmann::json::object()), "");
  EXPECT_NE(FinalSummary({{"elite_mean", 5}, {"elite_median", 4}}).find("5 (median 4)"),
            std::string::npos);
}

}  // namespace
}  // namespace samara
