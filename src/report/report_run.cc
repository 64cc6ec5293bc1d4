#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/format.h"
#include "report/headline.h"
#include "report/reference_scores.h"
#include "report/report_sections.h"

namespace samara {
namespace {

constexpr size_t kVideoEmbeddedBytesMax = 3 << 20;
constexpr int kEpisodesWanted = 100;

const KindPage& PageOf(const RunData& run) {
  return run.kind == &kLearningKind ? kLearningPage : kEvolutionPage;
}

// Returns the environment of run.json; an empty object when it has none.
nlohmann::json EnvironmentOf(const RunData& run) {
  const auto found = run.identity.find("environment");
  const bool there = found != run.identity.end() && found->is_object();
  return there ? *found : nlohmann::json::object();
}

// Returns the conditions of a score: frames, exploration, episodes and their cap, seeds.
std::string EvaluationRule(const RunData& run) {
  const std::string how = PageOf(run).evaluation(run);
  if (how.empty()) return "";
  return "<p class=\"note\">Evaluation: " + how +
         ". Intervals: percentile bootstrap over episodes, 10,000 resamples. One seed; a statement "
         "about the method wants five.</p>";
}

std::string Facts(const RunData& run) {
  std::string html = "<dl class=\"facts\">";
  const auto fact = [&](const char* name, const std::string& value) {
    if (!value.empty())
      html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", name, EscapeHtml(value));
  };
  const auto id = [&](const char* key) { return TextOr(run.identity, key, ""); };
  fact("task", run.game);
  fact("preset", run.preset);
  fact("seed", run.seed);
  fact("version of the environment",
       TextOr(EnvironmentOf(run), "version", run.Config("env.preset")));
  const std::string layers = run.Config("network.layers"), module = run.Config("network.module");
  std::string core;
  for (const auto& [key, name] : {std::pair("network.lstm", "LSTM"), {"network.gru", "GRU"}})
    if (const std::string units = run.Config(key); !units.empty() && units != "0")
      core = fmt::format(" + {} of {}", name, units);
  fact("network", (!module.empty()  ? "module " + module
                   : layers.empty() ? run.Config("network.name")
                                    : layers) +
                      core);
  const auto begun = run.identity.find("initial_policy");
  if (begun != run.identity.end() && begun->is_object())
    fact("began from", TextOr(*begun, "source", ""));
  fact("configuration", id("config_hash").substr(0, 16));
  const std::string revision = id("git_revision");
  fact("build", id("version") + (revision.empty() ? "" : " at " + revision));
  fact("compiler", id("compiler"));
  fact("CPU", id("cpu") + (id("isa").empty() ? "" : ", " + id("isa")));
  fact("started", id("created"));
  fact(PageOf(run).hash_name, PageOf(run).hash(run));
  fact("folder", run.folder.string());
  return html + "</dl>";
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
  if (const double own = run.TestMean(); !std::isnan(own))
    row(fmt::format("this run's {}", run.kind->agent),
        WithInterval(own, BootstrapInterval(run.TestReturns(), Mean)),
        fmt::format("{} frames; {:.0f} % of the way from random to human",
                    ShortNumber(run.Last("frames")), 100 * scale->Normalised(own)),
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

// A link to a file, from a page that lies in `page_folder`.
std::string LinkTo(const Path& file, const Path& page_folder) {
  std::error_code error;
  const Path relative = std::filesystem::relative(file, page_folder, error);
  const Path& target = error || relative.empty() ? file : relative;
  return fmt::format("<a href=\"{}\">{}</a>", EscapeHtml(target.string()),
                     EscapeHtml(file.filename().string()));
}

std::string Video(const RunData& run, const Path& page_folder) {
  // the run's own, not what `samara eval --video` left next to it
  const auto named = run.finished.find("video");
  if (named == run.finished.end() || !named->is_string()) return "";
  const auto found = std::ranges::find(
      run.videos, Path(named->get<std::string>()).filename().string(), &RootedPath::name);
  if (found == run.videos.end()) return "";
  const RootedPath& path = *found;
  if (const auto bytes = ReadFile(path, kVideoEmbeddedBytesMax); bytes.ok())
    return fmt::format(
        "<figure class=\"video\"><video controls loop muted playsinline "
        "src=\"data:video/mp4;base64,{}\"></video><figcaption>{}</figcaption></figure>",
        Base64(*bytes), EscapeHtml(path.name()));
  return "<p>Video: " + LinkTo(path.path(), page_folder) + "</p>";
}

// How to have the run again, and where its numbers are.
std::string Repeat(const RunData& run, const Path& page_folder) {
  std::string html;
  if (const std::string line = CommandLine(run); !line.empty())
    html += "<p class=\"note\">The same run again:</p><pre>" + EscapeHtml(line) + "</pre>";
  html += "<p class=\"note\">Files: ";
  for (const char* name : {"metrics.jsonl", "config.toml", "log.txt"})
    html += LinkTo(run.folder.path() / name, page_folder) + " ";
  return html + "</p>";
}

std::string Configuration(const RunData& run) {
  std::string rows;
  size_t count = 0;
  const bool named = !run.Config("env.id").empty();  // a task without a game
  for (const auto& [key, value] : run.config) {
    if (named && (key == "env.game" || key == "env.preset")) continue;
    rows += fmt::format("<tr><td>{}<td>{}", EscapeHtml(key), EscapeHtml(value));
    ++count;
  }
  std::string html = fmt::format(
      "<details><summary>Configuration ({} values)</summary><table><tbody>{}</tbody></table>"
      "</details>",
      count, rows);
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
  if (run.lines.empty()) warn(fmt::format("No {} has been completed yet.", run.kind->step));
  if (run.lines.size() == 1) warn("One line of metrics: curves begin with the second.");
  const size_t episodes = run.TestReturns().size();
  if (episodes > 0 && episodes < kEpisodesWanted)
    warn(fmt::format("The {} was tested on {} episodes; comparisons want at least {}.",
                     run.kind->agent, episodes, kEpisodesWanted));
  return html;
}

// Unit of a time axis and its length in seconds.
std::pair<const char*, double> TimeUnit(double seconds) {
  if (seconds > 2 * 3600) return {"hours", 3600};
  if (seconds > 2 * 60) return {"minutes", 60};
  return {"seconds", 1};
}

}  // namespace

std::string Tile(const std::string& name, const std::string& value_html,
                 const std::string& note_html) {
  return fmt::format("<div class=\"tile\"><span>{}</span><b>{}</b><small>{}</small></div>", name,
                     value_html, note_html);
}

std::string ReturnsTile(const std::string& name, const std::vector<double>& returns, double mean,
                        const std::string& of) {
  if (std::isnan(mean)) return "";
  if (returns.empty()) return Tile(name, ScoreText(mean), "mean, " + of);
  const Interval i = BootstrapInterval(returns, Mean);
  return Tile(name, ScoreText(mean),
              fmt::format("95 % interval {} to {}<br>median {}, {} {}", ScoreText(i.low),
                          ScoreText(i.high), ScoreText(Median(returns)), returns.size(), of));
}

std::string StepsTile(const RunData& run) {
  return Tile(run.kind->step + std::string("s"), Grouped(run.Steps()),
              run.resumes > 0
                  ? "resumed " + (run.resumes == 1 ? std::string("once")
                                                   : fmt::format("{} times", run.resumes))
                  : "");
}

std::string SpeedTile(const RunData& run) {
  const double frames = run.Final("frames"), seconds = run.Final("seconds");
  if (!(seconds > 0) || !(frames > 0)) return "";
  const double per_core = NumberOr(run.finished, "frames_per_core_second");
  return Tile(
      "speed", ShortNumber(frames / seconds) + " frames/s",
      fmt::format("{} in all{}<br>a billion frames: {}", DurationText(seconds),
                  std::isnan(per_core) ? "" : "<br>" + ShortNumber(per_core) + " per core-second",
                  DurationText(1e9 / (frames / seconds))));
}

std::string TimeBar(const RunData& run, const char* title, const char* unit,
                    const std::vector<std::pair<std::string, const char*>>& columns) {
  StackedBars chart{.title = title, .bars = {{"", {}}}, .unit = unit, .width = 560};
  for (const auto& [name, column] : columns) {
    chart.parts.push_back(name);
    chart.bars[0].second.push_back(run.Total(column));
  }
  return Svg(chart);
}

std::string Figure(const LineChart& chart) {
  const auto is_curve = [](const Series& series) {
    return std::ranges::count_if(series.y, [](double y) { return std::isfinite(y); }) > 1;
  };
  if (std::ranges::none_of(chart.series, is_curve)) return "";
  return "<figure>" + Svg(chart) + "</figure>";
}

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

Series SeriesOf(const RunData& run, const ColumnCurve& curve, std::vector<double> x) {
  Series series{.name = curve.name,
                .x = std::move(x),
                .y = run.Column(curve.column),
                .colour = curve.colour,
                .stroke = curve.stroke};
  return curve.as_it_is ? series : Smoothed(std::move(series));
}

LineChart LearningCurve(const RunData& run, CurveAxis axis) {
  std::vector<double> x = run.Column(axis == CurveAxis::kFrames ? "frames" : "seconds");
  LineChart chart{.x_label = run.kind->frames, .y_label = "return", .width = 560, .height = 360};
  chart.title = axis == CurveAxis::kFrames ? "Returns against frames" : "Returns against time";
  if (axis == CurveAxis::kTime) {
    double last = 0;
    for (double v : x)
      if (std::isfinite(v)) last = std::max(last, v);
    const auto [unit, length] = TimeUnit(last);
    for (double& v : x) v /= length;
    chart.x_label = unit;
  }
  for (const ColumnCurve& curve : PageOf(run).curves)
    chart.series.push_back(SeriesOf(run, curve, x));
  if (!std::isnan(run.RandomMean()))
    chart.references.emplace_back("random policy", run.RandomMean());
  return chart;
}

std::string RunSection(const RunData& run, const std::string& id, const Path& page_folder,
                       bool open) {
  return fmt::format("<details class=\"run\" id=\"{}\"{}><summary><h2>{}</h2></summary>", id,
                     open ? " open" : "", EscapeHtml(Title(run))) +
         "<div class=\"tiles\">" + PageOf(run).tiles(run) + "</div>" + EvaluationRule(run) +
         Warnings(run) + "<div class=\"charts\">" + Figure(LearningCurve(run, CurveAxis::kFrames)) +
         Figure(LearningCurve(run, CurveAxis::kTime)) + Video(run, page_folder) +
         PageOf(run).charts(run) + "</div>" + PageOf(run).tables(run) + Published(run) +
         "<h3>The run</h3>" + Facts(run) + Repeat(run, page_folder) + Configuration(run) +
         "</details>";
}

}  // namespace samara
