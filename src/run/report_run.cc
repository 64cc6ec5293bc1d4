#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "run/published_scores.h"
#include "run/report_sections.h"
#include "run/text.h"

namespace samara {
namespace {

constexpr size_t kVideoEmbeddedBytesMax = 3 << 20;
constexpr int kEpisodesWanted = 100;  // AT-19

std::string Tile(const std::string& name, const std::string& value_html,
                 const std::string& note_html) {
  return fmt::format("<div class=\"tile\"><span>{}</span><b>{}</b><small>{}</small></div>", name,
                     value_html, note_html);
}

std::string IntervalNote(const std::vector<double>& returns, const char* of) {
  if (returns.empty()) return fmt::format("mean, {}", of);
  const Interval i = BootstrapInterval(returns, Mean);
  return fmt::format("95 % interval {} to {}<br>median {}, {} {}", ScoreText(i.low),
                     ScoreText(i.high), ScoreText(Median(returns)), returns.size(), of);
}

// A number of the run's end, or the last generation's while it is not there yet.
double Final(const RunData& run, const char* key) {
  return NumberOr(run.finished, key, run.Last(key));
}

std::string Price(const RunData& run, double frames, double seconds) {
  const double per_core = NumberOr(run.finished, "frames_per_core_second");
  return fmt::format(
      "{} in all{}<br>a billion frames: {}", DurationText(seconds),
      std::isnan(per_core) ? "" : "<br>" + ShortNumber(per_core) + " per core-second",
      DurationText(1e9 / (frames / seconds)));
}

std::string Tiles(const RunData& run) {
  std::string html = "<div class=\"tiles\">";
  const auto elite = run.EliteReturns(), random = run.RandomReturns();
  if (!std::isnan(run.EliteMean()))
    html += Tile("elite, fresh episodes", ScoreText(run.EliteMean()),
                 IntervalNote(elite, "fresh episodes"));
  else if (const double v = run.Last("elite_validation_mean"); !std::isnan(v))
    html += Tile("elite, validation", ScoreText(v), "not tested on fresh episodes yet");
  if (!std::isnan(run.RandomMean()))
    html += Tile("random policy", ScoreText(run.RandomMean()), IntervalNote(random, "episodes"));
  const double frames = Final(run, "frames"), seconds = Final(run, "seconds");
  const double test = run.Last("frames_test");
  html += Tile("generations", Grouped(Final(run, "generation")),
               run.resumes > 0 ? fmt::format("resumed {} times", run.resumes) : "");
  html += Tile(
      "frames", ShortNumber(frames),
      test > 0 ? fmt::format("and {} in tests", ShortNumber(test)) : "population and validation");
  if (seconds > 0 && frames > 0)
    html += Tile("speed", ShortNumber(frames / seconds) + " frames/s", Price(run, frames, seconds));
  return html + "</div>";
}

// What run.json says of the environment; an empty object when it says nothing.
nlohmann::json EnvironmentOf(const RunData& run) {
  const auto found = run.identity.find("environment");
  const bool there = found != run.identity.end() && found->is_object();
  return there ? *found : nlohmann::json::object();
}

std::string Facts(const RunData& run) {
  std::string html = "<dl class=\"facts\">";
  const auto fact = [&](const char* name, const std::string& value) {
    if (!value.empty())
      html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", name, EscapeHtml(value));
  };
  const auto id = [&](const char* key) { return TextOr(run.identity, key, ""); };
  fact("game", run.game);
  fact("preset", run.preset);
  fact("seed", run.seed);
  fact("environment", TextOr(EnvironmentOf(run), "version", run.Config("env.preset")));
  fact("network", run.Config("network.name"));
  fact("configuration", id("config_hash").substr(0, 16));
  const std::string revision = id("git_revision");
  fact("build", id("version") + (revision.empty() ? "" : " at " + revision));
  fact("compiler", id("compiler"));
  fact("CPU", id("cpu") + (id("isa").empty() ? "" : ", " + id("isa")));
  fact("started", id("created"));
  fact("population hash",
       run.generations.empty()
           ? ""
           : TextOr(run.generations.back(), "population_hash", "").substr(0, 16));
  fact("folder", run.folder.string());
  return html + "</dl>";
}

// Frames of training before the elite's latest test.
double FramesAtTest(const RunData& run) {
  if (!NumbersOf(run.finished, "elite_returns").empty()) return Final(run, "frames");
  for (auto g = run.generations.rbegin(); g != run.generations.rend(); ++g)
    if (!NumbersOf(*g, "elite_test_returns").empty()) return NumberOr(*g, "frames");
  return std::numeric_limits<double>::quiet_NaN();
}

// What AT-19 wants said beside a score: frames, exploration, episodes and their cap, seeds.
std::string EvaluationRule(const RunData& run) {
  const size_t episodes = run.EliteReturns().size();
  if (episodes == 0) return "";
  const double cap = std::strtod(run.Config("env.test_frames_max").c_str(), nullptr);
  return fmt::format(
      "<p class=\"note\">Evaluation: the elite after {} frames, without random actions (epsilon "
      "0), "
      "on {} fresh episodes{}. Intervals: percentile bootstrap over episodes, 10,000 resamples. "
      "One "
      "seed; a statement about the method wants five.</p>",
      Grouped(FramesAtTest(run)), episodes,
      cap > 0 ? fmt::format(" of at most {} frames", Grouped(cap)) : "");
}

// Seconds of each column, summed over generations; missing values count nothing.
double Total(const RunData& run, const char* column) {
  double total = 0;
  for (double v : run.Column(column))
    if (std::isfinite(v)) total += v;
  return total;
}

std::string Stages(const RunData& run) {
  const auto bars = [&](const char* title, const char* unit,
                        const std::vector<std::pair<std::string, const char*>>& columns) {
    StackedBars chart{.title = title, .bars = {{"", {}}}, .unit = unit, .width = 560};
    for (const auto& [name, column] : columns) {
      chart.parts.push_back(name);
      chart.bars[0].second.push_back(Total(run, column));
    }
    return Svg(chart);
  };
  return "<figure>" +
         bars("Time by phase", "s",
              {{"population", "seconds_population"},
               {"validation", "seconds_validation"},
               {"test", "seconds_test"},
               {"between", "seconds_between"}}) +
         bars("Time by stage, all threads and actors", "thread-s",
              {{"materialise", "seconds_materialise"},
               {"inference", "seconds_inference"},
               {"environment", "seconds_environment"}}) +
         "</figure>";
}

std::string Lineages(const RunData& run) {
  LineChart chart{.title = "Diversity of lineages",
                  .x_label = "generation",
                  .y_label = "genomes, mutations",
                  .width = 560,
                  .height = 300};
  const auto generation = run.Column("generation");
  const auto add = [&](const char* name, const char* column, int colour, Stroke stroke) {
    chart.series.push_back({.name = name,
                            .x = generation,
                            .y = run.Column(column),
                            .colour = colour,
                            .stroke = stroke});
  };
  add("initial genomes among the parents", "lineages", 0, Stroke::kSolid);
  add("parents that had children", "parents_distinct", 1, Stroke::kDashed);
  add("mutations of the elite", "elite_mutations", 2, Stroke::kDotted);
  return "<figure>" + Svg(chart) + "</figure>";
}

std::string Returns(const RunData& run) {
  const auto elite = run.EliteReturns();
  if (elite.empty()) return "";
  Histogram chart{.title = "Returns of single episodes",
                  .x_label = "return",
                  .sets = {{"elite", elite}, {"random policy", run.RandomReturns()}},
                  .width = 560,
                  .height = 300};
  return "<figure>" + Svg(chart) + "</figure>";
}

std::string Published(const RunData& run) {
  const auto scale = ScaleOfGame(run.game);
  if (!scale) return "";
  std::string html =
      "<h3>For scale</h3><div class=\"wide\"><table><thead><tr><th>player<th>score<th>source"
      "</thead><tbody>";
  const auto row = [&](std::string_view who, const std::string& score_html, std::string_view source,
                       bool own) {
    html += fmt::format("<tr{}><td>{}<td class=\"n\">{}<td>{}", own ? " class=\"own\"" : "",
                        EscapeHtml(who), score_html, EscapeHtml(source));
  };
  constexpr const char* kTable = "table of the 57 Atari games";
  if (const double elite = run.EliteMean(); !std::isnan(elite))
    row("this run's elite", WithInterval(elite, BootstrapInterval(run.EliteReturns(), Mean)),
        fmt::format("{} frames; {:.0f} % of the way from random to human",
                    ShortNumber(run.Last("frames")), 100 * scale->Normalised(elite)),
        true);
  if (const double random = run.RandomMean(); !std::isnan(random))
    row("random policy, measured here",
        WithInterval(random, BootstrapInterval(run.RandomReturns(), Mean)), "this run", true);
  row("random policy", ScoreText(scale->random), kTable, false);
  row("human", ScoreText(scale->human), kTable, false);
  for (const PublishedScore& p : PublishedScores(run.game))
    row(p.method, ScoreText(p.score), p.source, false);
  return html +
         "</tbody></table></div><p class=\"note\">Brackets hold 95 % intervals. Published runs "
         "differ from this one in frames, emulator and start conditions: they give a scale, not a "
         "ranking.</p>";
}

std::string Base64(std::string_view bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (k < n ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) out += k <= n ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::string Video(const RunData& run, const Path& page_folder) {
  if (run.videos.empty()) return "";
  const Path& path = run.videos.back();
  const std::string name = EscapeHtml(path.filename().string());
  if (const auto bytes = ReadFile(path, kVideoEmbeddedBytesMax); bytes.ok())
    return fmt::format(
        "<figure class=\"video\"><video controls loop muted playsinline "
        "src=\"data:video/mp4;base64,{}\"></video><figcaption>{}</figcaption></figure>",
        Base64(*bytes), name);
  std::error_code error;
  const Path relative = std::filesystem::relative(path, page_folder, error);
  return fmt::format("<p>Video: <a href=\"{}\">{}</a></p>",
                     EscapeHtml(error || relative.empty() ? path.string() : relative.string()),
                     name);
}

std::string Configuration(const RunData& run) {
  std::string rows;
  for (const auto& [key, value] : run.config)
    rows += fmt::format("<tr><td>{}<td>{}", EscapeHtml(key), EscapeHtml(value));
  std::string html = fmt::format(
      "<details><summary>Configuration ({} values)</summary><table><tbody>{}</tbody></table>"
      "</details>",
      run.config.size(), rows);
  if (!run.identity.empty())
    html += fmt::format(
        "<details><summary>Build and machine (run.json)</summary><pre>{}</pre></details>",
        EscapeHtml(run.identity.dump(2, ' ', false, nlohmann::json::error_handler_t::replace)));
  return html;
}

std::string Warnings(const RunData& run) {
  std::string html;
  const auto warn = [&](const std::string& text) {
    html += "<p class=\"warning\">" + text + "</p>";
  };
  if (run.generations.empty()) warn("No generation has been completed yet.");
  const size_t episodes = run.EliteReturns().size();
  if (episodes > 0 && episodes < kEpisodesWanted)
    warn(fmt::format("The elite was tested on {} episodes; comparisons want at least {}.", episodes,
                     kEpisodesWanted));
  return html;
}

// Unit of a time axis and its length in seconds.
std::pair<const char*, double> TimeUnit(double seconds) {
  if (seconds > 2 * 3600) return {"hours", 3600};
  if (seconds > 2 * 60) return {"minutes", 60};
  return {"seconds", 1};
}

}  // namespace

std::string Title(const RunData& run) {
  std::string title;
  const auto add = [&](const std::string& part) {
    if (!part.empty()) title += (title.empty() ? "" : ", ") + part;
  };
  add(run.game);
  add(run.preset);
  add(run.seed.empty() ? "" : "seed " + run.seed);
  return title.empty() ? run.name : title;
}

std::string WithInterval(double value, const Interval& interval) {
  if (std::isnan(value)) return ScoreText(value);
  if (std::isnan(interval.low)) return ScoreText(value);
  return fmt::format("{} <small>[{}, {}]</small>", ScoreText(value), ScoreText(interval.low),
                     ScoreText(interval.high));
}

LineChart LearningCurve(const RunData& run, CurveAxis axis) {
  std::vector<double> x = run.Column(axis == CurveAxis::kFrames ? "frames" : "seconds");
  LineChart chart{.x_label = "frames (population and validation)",
                  .y_label = "return",
                  .width = 560,
                  .height = 360};
  chart.title = axis == CurveAxis::kFrames ? "Returns against frames" : "Returns against time";
  if (axis == CurveAxis::kTime) {
    double last = 0;
    for (double v : x)
      if (std::isfinite(v)) last = std::max(last, v);
    const auto [unit, length] = TimeUnit(last);
    for (double& v : x) v /= length;
    chart.x_label = unit;
  }
  const auto add = [&](const char* name, const char* column, int colour, Stroke stroke) {
    chart.series.push_back(
        {.name = name, .x = x, .y = run.Column(column), .colour = colour, .stroke = stroke});
  };
  add("population, best", "fitness_max", 1, Stroke::kDashed);
  add("mean", "fitness_mean", 0, Stroke::kSolid);
  add("median", "fitness_median", 5, Stroke::kDotted);
  add("elite, validation", "elite_validation_mean", 2, Stroke::kSolid);
  add("elite, test", "elite_test_mean", 3, Stroke::kPoints);
  if (!std::isnan(run.RandomMean()))
    chart.references.emplace_back("random policy", run.RandomMean());
  return chart;
}

std::string RunSection(const RunData& run, const std::string& id, const Path& page_folder,
                       bool open) {
  return fmt::format("<details class=\"run\" id=\"{}\"{}><summary><h2>{}</h2></summary>", id,
                     open ? " open" : "", EscapeHtml(Title(run))) +
         Tiles(run) + EvaluationRule(run) + Warnings(run) + Facts(run) +
         "<div class=\"charts\"><figure>" + Svg(LearningCurve(run, CurveAxis::kFrames)) +
         "</figure><figure>" + Svg(LearningCurve(run, CurveAxis::kTime)) + "</figure>" +
         Returns(run) + Lineages(run) + Stages(run) + Video(run, page_folder) + "</div>" +
         Published(run) + Configuration(run) + "</details>";
}

}  // namespace samara
