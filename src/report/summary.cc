#include "report/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "core/format.h"
#include "core/log.h"
#include "core/shell.h"
#include "core/statistics.h"
#include "report/run_data.h"

namespace samara {
namespace {

using nlohmann::json;

std::string Row(const char* name, const std::string& text) {
  return fmt::format("  {:<8} {}\n", name, text);
}

// "1,080 on 200 fresh episodes (95 % interval 1,036 to 1,124, median 1,075)"; of one episode there
// is no interval
std::string Score(double mean, double median, const std::vector<double>& returns,
                  const char* episode) {
  std::string text = ScoreText(mean);
  if (returns.empty())
    return std::isnan(median) ? text : text + fmt::format(" (median {})", ScoreText(median));
  text += " on " + CountText(static_cast<double>(returns.size()), episode);
  if (returns.size() == 1) return text;
  const Interval i = BootstrapInterval(returns, Mean);
  return text + fmt::format(" (95 % interval {} to {}, median {})", ScoreText(i.low),
                            ScoreText(i.high), ScoreText(Median(returns)));
}

// Those of return_last100, of `episodes` in all: fewer than 100 in a short run.
std::string LastEpisodes(double episodes) {
  if (episodes == 1) return "the only episode";
  return episodes < 100 ? fmt::format("all {:.0f} episodes", episodes) : "the last 100 episodes";
}

// The elite's advantage with its own interval: both sets of episodes are resampled.
std::string Advantage(const std::vector<double>& elite, const std::vector<double>& random) {
  const auto difference = [&](std::span<const double> sample) {
    return Mean(sample.first(elite.size())) - Mean(sample.subspan(elite.size()));
  };
  const std::vector<double> strata[] = {elite, random};
  const Interval i = StratifiedBootstrapInterval(strata, difference);
  const std::string by =
      fmt::format("{} (95 % interval {} to {})", ScoreText(Mean(elite) - Mean(random)),
                  ScoreText(i.low), ScoreText(i.high));
  if (i.low > 0) return "the elite is better by " + by;
  if (i.high < 0) return "the elite is worse: " + by;
  return "not told apart by these episodes: " + by;
}

// The headline scores of several runs, where they have one.
struct RunScores {
  explicit RunScores(std::span<const json> results) {
    for (const json& result : results) {
      const double score = HeadlineScore(result);
      if (std::isnan(score)) continue;
      if (scores.empty() || score > best)
        best = score, best_run = EscapeControl(TextOr(result, "run", ""));
      scores.push_back(score);
    }
  }
  // "mean 12 (95 % interval 10 to 14)"; of one run its score. REQUIRES: one at least.
  std::string Average() const {
    if (scores.size() == 1) return ScoreText(scores[0]);
    const Interval interval = BootstrapInterval(scores, Mean);
    return fmt::format("mean {} (95 % interval {} to {})", ScoreText(Mean(scores)),
                       ScoreText(interval.low), ScoreText(interval.high));
  }

  std::vector<double> scores;
  double best = 0;
  std::string best_run;
};

}  // namespace

double HeadlineScore(const json& result) {
  for (const char* key : {"elite_mean", "test_mean", "return_last100"})
    if (const double score = NumberOr(result, key); !std::isnan(score)) return score;
  return std::nan("");
}

std::string FinalSummary(const json& result) {
  const auto number = [&](const char* key) { return NumberOr(result, key); };
  const auto elite = NumbersOf(result, "elite_returns"),
             random = NumbersOf(result, "random_returns");
  const double elite_mean = elite.empty() ? number("elite_mean") : Mean(elite);
  const auto test = NumbersOf(result, "test_returns");
  const double random_mean = random.empty() ? number("random_mean") : Mean(random);
  std::string text;
  if (!std::isnan(elite_mean))
    text += Row("elite", Score(elite_mean, number("elite_median"), elite, "fresh episode"));
  if (!test.empty()) text += Row("agent", Score(Mean(test), Median(test), test, "test episode"));
  if (const double at = number("solved_at"); !std::isnan(at)) {
    std::string line = fmt::format("after {}", CountText(at, "evaluation"));
    const double generation = number("solved_generation"), by = number("solved_individual");
    if (!std::isnan(by))
      line += fmt::format(", by individual {} of generation {}", Grouped(by), Grouped(generation));
    text += Row("solved", line);
    if (!result.value("elite_solved", true))
      text += Row("", std::isnan(by)
                          ? "not by the elite in its last test"
                          : fmt::format("not by the elite: samara export {} FILE.safetensors "
                                        "--generation {:.0f} --individual {:.0f}",
                                        ShellWord(TextOr(result, "run", "RUN")), generation, by));
  }
  if (const double best = number("best_mean"); !std::isnan(best))
    text += Row("best", fmt::format("{} in the evaluation after {} frames: --individual best",
                                    ScoreText(best), Grouped(number("best_frames"))));
  if (const double last = number("return_last100"); !std::isnan(last))
    text += Row("learning", ScoreText(last) + " on " + LastEpisodes(number("episodes")));
  if (!std::isnan(random_mean))
    text += Row("random", Score(random_mean, number("random_median"), random, "episode"));
  if (!elite.empty() && !random.empty()) text += Row("", Advantage(elite, random));

  const double frames = number("frames"), seconds = number("seconds"), cores = number("cores");
  if (!std::isnan(frames)) {
    std::string line = Grouped(frames);
    if (const double g = number("generation"); !std::isnan(g))
      line += " in " + CountText(g, "generation");
    if (const double u = number("updates"); !std::isnan(u)) line += " in " + CountText(u, "update");
    if (!std::isnan(seconds)) line += " and " + DurationText(seconds);
    text += Row("frames", line);
  }
  if (frames > 0 && seconds > 0) {
    const double rate = frames / seconds;
    std::string line = Grouped(std::round(rate)) + " frames/s";
    if (cores > 0)
      line = fmt::format("{} frames per core-second, {}", Grouped(std::round(rate / cores)), line);
    text += Row("cost", fmt::format("{}; a billion: {}", line, DurationText(1e9 / rate)));
  }
  for (const auto& [name, key] : {std::pair{"video", "video"},
                                  {"curve", "learning_curve"},
                                  {"map", "map"},
                                  {"archive", "archive"},
                                  {"report", "report"},
                                  {"run", "run"}})
    if (const std::string path = TextOr(result, key, ""); !path.empty())
      text += Row(name, EscapeControl(path));
  return text;
}

std::string SeedsSummary(const std::vector<json>& results) {
  const RunScores runs(results);
  if (runs.scores.empty()) return {};
  if (runs.scores.size() == 1)
    return Row("seeds", "one: " + ScoreText(runs.scores[0])) + Row("run", runs.best_run);
  const auto [low, high] = std::ranges::minmax(runs.scores);
  return Row("seeds", fmt::format("{}: {}, from {} to {}", runs.scores.size(), runs.Average(),
                                  ScoreText(low), ScoreText(high))) +
         Row("best", runs.best_run);
}

std::string SettingsSummary(const std::vector<std::string>& names, std::span<const json> results) {
  constexpr size_t kShown = 12;
  const size_t seeds = results.size() / names.size();
  std::vector<std::pair<std::string, RunScores>> ranked;
  for (size_t i = 0; i < names.size(); ++i)
    if (const RunScores runs(results.subspan(i * seeds, seeds)); !runs.scores.empty())
      ranked.emplace_back(names[i], runs);
  if (ranked.empty()) return {};
  std::ranges::stable_sort(ranked, std::greater(),
                           [](const auto& setting) { return Mean(setting.second.scores); });
  std::string text;
  for (size_t i = 0; i < std::min(ranked.size(), kShown); ++i)
    text += Row(std::to_string(i + 1).c_str(),
                EscapeControl(ranked[i].first) + ": " + ranked[i].second.Average());
  if (ranked.size() > kShown)
    text += Row("", fmt::format("and {} more in the report", ranked.size() - kShown));
  return text + Row("best run", RunScores(results).best_run);
}

}  // namespace samara
