#include "report/report.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <regex>

#include "report/reference_scores.h"
#include "report/run_data.h"
#include "report/summary.h"

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
  EXPECT_EQ(run->lines.size(), 2u);
  EXPECT_DOUBLE_EQ(run->TestMean(), 100);
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
  std::ofstream(root_ / "hollow" / "metrics.jsonl") << kTwoGenerations;
  EXPECT_EQ(code(root_ / "hollow"), Code::kNoInput);
  std::ofstream(root_ / "hollow" / "run.json") << "{}";
  EXPECT_EQ(code(root_ / "hollow"), Code::kBadData) << "a run, without its configuration";
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

TEST_F(ReportTest, BeginsWithTheScoreAndSaysHowToRepeatIt) {
  const Path folder = Run("a", kTwoGenerations);
  const char* headline =
      "<h1>frostbite: 100 after 2.00k frames and 20 s; a random policy gets 65</h1>";
  EXPECT_NE(Report({folder}).find(headline), std::string::npos);
  EXPECT_EQ(Report({folder}).find("The same run again"), std::string::npos) << "not known";
  std::ofstream(folder / "run.json")
      << R"json({"command":["samara","train","atari/x","env.kwargs={a = 'b'}"]})json";
  for (const char* part : {"<pre>samara train atari/x ",
                           "env.kwargs={a = ", "<a href=\"a/metrics.jsonl\">metrics.jsonl</a>"})
    EXPECT_NE(Report({folder}).find(part), std::string::npos) << part;
  std::ofstream(folder / "run.json")
      << R"({"command":["samara","train","atari/x","ga.generations=2","--out","a"]})";
  std::ofstream(folder / "metrics.jsonl", std::ios::app)
      << R"({"event":"resumed","generation":2,"changes":["ga.generations=4","ga.frames=9.0"]})"
         "\n"
      << R"({"event":"resumed","generation":4,"changes":["ga.generations=8"]})"
         "\n";
  std::ofstream(folder / "config.toml") << "[env]\ngame = \"frostbite\"\n"
                                           "[ga]\ngenerations = 8\nframes = 9.0\n";
  EXPECT_NE(Report({folder}).find("<pre>samara train atari/x --out a ga.frames=9 ga.generations=8"),
            std::string::npos)
      << "with the budget that resumes raised";
  const std::string two =
      Report({folder, Run("b", kTwoGenerations, "[run]\nname = \"p\"\n[env]\ngame = \"pong\"\n")});
  EXPECT_NE(two.find("<h1>2 runs: frostbite, pong by atari/x, p</h1>"), std::string::npos);
  const std::string begun = Report({Run("c", "")});
  EXPECT_NE(begun.find("<h1>frostbite: nothing to show yet</h1>"), std::string::npos);
}

// A game that a run did not play is no setting of it.
TEST_F(ReportTest, AnotherTaskHasNoGameInItsConfiguration) {
  const char* keys = "[env]\nid = \"CartPole-v1\"\ngame = \"frostbite\"\npreset = \"ale\"\n";
  const std::string html = Report({Run("a", kTwoGenerations, keys)});
  EXPECT_NE(html.find("Configuration (1 values)"), std::string::npos);
  EXPECT_EQ(html.find("frostbite"), std::string::npos);
}

// A line through one point is none: the chart is left out and the page says why.
TEST_F(ReportTest, OneLineOfMetricsIsNoCurve) {
  const std::string html = Report({Run("a", R"({"generation":1,"frames":10,"fitness_max":5})"
                                            "\n")});
  EXPECT_EQ(html.find("Returns against"), std::string::npos);
  EXPECT_NE(html.find("curves begin with the second"), std::string::npos);
}

// A metric that no run has makes no chart.
TEST_F(ReportTest, ComparesMetricsOverRuns) {
  const std::string other = std::regex_replace(kTwoGenerations, std::regex("120,"), "140,");
  const std::string html =
      Report({Run("a", kTwoGenerations),
              Run("b", other, "[run]\nseed = 8\n[env]\ngame = \"frostbite\"\n")});
  const size_t metrics = html.find("Metrics over the runs");
  ASSERT_NE(metrics, std::string::npos);
  EXPECT_NE(html.find("Population, best return", metrics), std::string::npos);
  EXPECT_NE(html.find("class=\"band", metrics), std::string::npos) << "of the two runs";
  EXPECT_EQ(html.find("Entropy of the policy", metrics), std::string::npos);
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

TEST_F(ReportTest, ShowsLineagesWhereTheAlgorithmHasThem) {
  const Path without = Run("without", "{\"generation\":1,\"frames\":10}\n");
  const Path with = Run("with",
                        "{\"generation\":1,\"frames\":10,\"lineages\":3}\n"
                        "{\"generation\":2,\"frames\":20,\"lineages\":2}\n");
  EXPECT_EQ(Report({without}).find("Diversity of lineages"), std::string::npos);
  EXPECT_NE(Report({with}).find("Diversity of lineages"), std::string::npos);
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

// Two lines of a learning run and its end, as a learning run writes them; the rest does not matter
// here.
constexpr const char* kTwoUpdates =
    R"({"event":"random_policy","returns":[20,24],"mean":22,"median":22}
{"update":10,"frames":1000,"seconds":1,"return_mean":30,"return_last100":30,"loss":2,"entropy":0.7,"lag_min":0,"lag_mean":1,"lag_max":2,"lag_histogram":[30,60,10,0],"stalls":4,"entropy_cost":0.01,"environment_workers":2,"seconds_environment":1,"seconds_inference":0.1,"seconds_server":0.1,"seconds_server_wait":0.8,"seconds_learner_batch":0.1,"seconds_learner_forward":0.2,"seconds_learner_backward":0.1,"seconds_learner_step":0.1,"seconds_learner_wait":0.5,"drops":{"stale_unrolls":0}}
{"update":30,"frames":3000,"seconds":3,"return_mean":null,"return_last100":50,"loss":1,"entropy":0.6,"lag_min":0,"lag_mean":1,"lag_max":3,"lag_histogram":[70,20,0,10],"stalls":4,"entropy_cost":0.01,"environment_workers":2,"seconds_environment":3,"seconds_inference":0.1,"seconds_server":0.1,"seconds_server_wait":1.8,"seconds_learner_batch":0.1,"seconds_learner_forward":0.2,"seconds_learner_backward":0.1,"seconds_learner_step":0.1,"seconds_learner_wait":1.5,"drops":{"stale_unrolls":7}}
{"event":"finished","updates":30,"frames":3000,"episodes":60,"seconds":3,"return_last100":51,"test_returns":[40,60,80],"test_mean":60,"parameter_hash":"00112233445566778899aabbccddeeff","drops":{"stale_unrolls":7,"lost_episodes":0}}
)";
std::string LearningConfig(int seed) {
  return "[run]\nseed = " + std::to_string(seed) +
         "\n[env]\nid = \"CartPole-v1\"\n[learn]\nframes = 3000.0\n";
}

TEST_F(ReportTest, ReadsALearningRun) {
  const auto run = LoadRun(Run("a", kTwoUpdates, LearningConfig(1)));
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->kind, &kLearningKind);
  EXPECT_EQ(run->Column("update"), (std::vector<double>{10, 30}));
  EXPECT_DOUBLE_EQ(run->TestMean(), 60);
  EXPECT_DOUBLE_EQ(run->RandomMean(), 22);
  EXPECT_DOUBLE_EQ(run->Steps(), 30);
  EXPECT_DOUBLE_EQ(run->Final("return_last100"), 51);
  EXPECT_DOUBLE_EQ(run->Last("return_mean"), 30);
  EXPECT_DOUBLE_EQ(run->Total("seconds_environment"), 4);
  EXPECT_TRUE(std::isnan(run->Total("seconds_nowhere")));
  // without a configuration its lines tell
  EXPECT_EQ(LoadRun(Run("b", kTwoUpdates, ""))->kind, &kLearningKind);
  EXPECT_EQ(LoadRun(Run("c", kTwoGenerations, ""))->kind, &kEvolutionKind);
}

// lag: 100 of 200 steps at 0, 80 at 1; busy: environment 4 of 2 x 3 s, inference 0.4 of 3 s,
// learner 1 of 3 s; stalls: 4 in the first second, 4 in the two after it
TEST_F(ReportTest, ShowsHowALearningRunWent) {
  const std::string html = Report({Run("a", kTwoUpdates, LearningConfig(1))});
  for (const char* part :
       {"<b>51</b>", "<b>60</b><small>95 % interval 40 to 80", "<b>22</b>", "<b>30</b>",
        "<b>3.00k</b>", "<b>1.00k frames/s</b>", "<dd>00112233445566778899aabbccddeeff</dd>",
        "the agent after 3,000 frames, drawing", "Returns against frames", "random policy 22",
        "Entropy of the policy", "<title>0: 50<", "<title>1: 40<", "<title>3+: 5<",
        "environment 67 %, inference 13 %, learner 33 %", "Bottleneck: environment.",
        "back-pressure waits: 4 at 10", "back-pressure waits: 2 at 30",
        "<td>stale unrolls<td class=\"n\">7"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  for (const char* part : {"elite", "generation", "lost episodes", "Entropy cost", ">nan<"})
    EXPECT_EQ(html.find(part), std::string::npos) << part;
}

TEST_F(ReportTest, ALearningRunThatJustBeganIsFine) {
  const std::string html = Report({Run("a", "", LearningConfig(1))});
  EXPECT_NE(html.find("No update has been completed yet"), std::string::npos);
  EXPECT_EQ(html.find("Bottleneck"), std::string::npos);
  EXPECT_EQ(html.find("Dropped"), std::string::npos);
  const std::string odd = Report({Run("b",
                                      "{\"update\":1,\"lag_histogram\":\"x\",\"drops\":[],"
                                      "\"loss\":null}\n{\"update\":2,\"lag_histogram\":[0]}\n",
                                      LearningConfig(1))});
  EXPECT_TRUE(odd.ends_with("</html>\n"));
  EXPECT_EQ(odd.find(">nan<"), std::string::npos);
}

// means over tests are 60 and 90: together 75, resampled [60, 90]
TEST_F(ReportTest, SeedsOfALearningRunAreOneGroupBesideAnEvolution) {
  const std::string other = std::regex_replace(kTwoUpdates, std::regex("40,60,80"), "90");
  const std::vector<Path> seeds = {Run("a", kTwoUpdates, LearningConfig(1)),
                                   Run("b", other, LearningConfig(2))};
  const std::string html = Report(seeds);
  for (const char* part : {"75 <small>[60, 90]</small>", "means of the agent over", "class=\"band",
                           "Return, mean of the last 100 episodes, CartPole-v1", "<th>updates<th>"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  const std::string both = Report({seeds[0], Run("c", kTwoGenerations)});
  for (const char* part : {"elite or agent", "<th>generations or updates<th>"})
    EXPECT_NE(both.find(part), std::string::npos) << part;
  // two kinds of runs share the curves of their game
  const Path evolved =
      Run("d", kTwoGenerations, "[run]\nname = \"ga\"\n[env]\nid = \"CartPole-v1\"\n");
  const std::string same = Report({seeds[0], evolved});
  for (const char* part : {"Return, CartPole-v1", "ga, elite in validation", "last 100 episodes"})
    EXPECT_NE(same.find(part), std::string::npos) << part;
  EXPECT_TRUE(WriteLearningCurve(std::vector<Path>{seeds[0], evolved}, root_ / "c.svg").ok());
}

TEST_F(ReportTest, SmallVideosAreEmbedded) {
  const Path folder = Run("a", kTwoGenerations);
  std::filesystem::create_directories(folder / "videos");
  std::ofstream(folder / "videos/elite.mp4") << "foobar!";  // base64 by RFC 4648: Zm9vYmFyIQ==
  std::ofstream(folder / "videos/x.mp4") << "samara eval --video made it";
  const char* film = "data:video/mp4;base64,Zm9vYmFyIQ==\"";
  EXPECT_EQ(Report({folder}).find("data:video"), std::string::npos) << "no run has ended with one";
  std::ofstream(folder / "metrics.jsonl", std::ios::app)
      << R"({"event":"finished","video":"elsewhere/a/videos/elite.mp4"})"
      << "\n";
  EXPECT_NE(Report({folder}).find(film), std::string::npos);
  std::ofstream(folder / "metrics.jsonl", std::ios::app) << R"({"event":"resumed"})"
                                                         << "\n";
  EXPECT_EQ(Report({folder}).find(film), std::string::npos) << "it shows an earlier agent";
}

TEST_F(ReportTest, LearningCurveIsAPicture) {
  const Path folder = Run("a", kTwoGenerations);
  const auto draw = [](const std::vector<Path>& runs, const Path& svg) {
    return WriteLearningCurve(runs, svg);
  };
  ASSERT_TRUE(draw({folder}, folder / "learning_curve.svg").ok());
  const std::string svg = ReadFile(folder / "learning_curve.svg").ValueOrThrow();
  EXPECT_TRUE(svg.starts_with("<svg xmlns="));
  EXPECT_NE(svg.find("elite, validation"), std::string::npos);
  const Path learning = Run("b", kTwoUpdates, LearningConfig(1));
  ASSERT_TRUE(draw({learning}, learning / "learning_curve.svg").ok());
  EXPECT_NE(ReadFile(learning / "learning_curve.svg")->find("last 100 episodes, mean"),
            std::string::npos);
  const Path again = Run("c", kTwoUpdates, LearningConfig(2));
  ASSERT_TRUE(draw({learning, again}, again / "both.svg").ok());
  const std::string both = ReadFile(again / "both.svg").ValueOrThrow();
  EXPECT_NE(both.find("mean of the last 100 episodes, CartPole-v1"), std::string::npos);
  EXPECT_EQ(draw({learning, folder}, again / "mixed.svg").code(), Code::kConfig);
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
        "10,000 frames per core-second, 20,000 frames/s; a billion: 13:53:20 h",
        "runs/a/videos/elite.mp4"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST(SummaryTest, NamesTheMemberThatSolvedTheTask) {
  nlohmann::json result = {{"solved_at", 9279}, {"elite_solved", true}};
  EXPECT_EQ(FinalSummary(result), "  solved   after 9,279 evaluations\n");
  result["elite_solved"] = false;
  EXPECT_EQ(FinalSummary(result),
            "  solved   after 9,279 evaluations\n           not by the elite in its last test\n");
  result["elite_solved"] = true;
  result["solved_generation"] = 186, result["solved_individual"] = 28;
  const std::string named =
      "  solved   after 9,279 evaluations, by individual 28 of generation 186\n";
  EXPECT_EQ(FinalSummary(result), named);
  result["elite_solved"] = false;
  EXPECT_EQ(FinalSummary(result), named +
                                      "           not by the elite: samara export RUN "
                                      "FILE.safetensors --generation 186 --individual 28\n");
}

TEST(SummaryTest, OneEpisodeHasNoInterval) {
  EXPECT_EQ(FinalSummary({{"test_returns", {-9.9}}}), "  agent    -9.9 on 1 test episode\n");
}

TEST(SummaryTest, CountsTheEpisodesThatThereWere) {
  const auto learning = [](double episodes) {
    return FinalSummary({{"return_last100", -1241}, {"episodes", episodes}});
  };
  EXPECT_EQ(learning(1), "  learning -1,241 on the only episode\n");
  EXPECT_EQ(learning(15), "  learning -1,241 on all 15 episodes\n");
  EXPECT_EQ(learning(100), "  learning -1,241 on the last 100 episodes\n");
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
