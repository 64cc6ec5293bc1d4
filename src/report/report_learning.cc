// Sections of a report for learning runs only: losses, policy lag, queues, waits, drops.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "core/format.h"
#include "report/report_sections.h"
#include "view/utilization.h"

namespace samara {
namespace {

constexpr ColumnCurve kCurves[] = {
    {"episodes that ended, mean", "return_mean", 1, Stroke::kDotted},
    {"last 100 episodes, mean", "return_last100", 0, Stroke::kSolid, /*as_it_is=*/true},
};

std::string Hash(const RunData& run) { return TextOr(run.finished, "parameter_hash", ""); }

std::string Tiles(const RunData& run) {
  std::string html;
  if (const double last = run.Final("return_last100"); !std::isnan(last))
    html += Tile("last 100 episodes", ScoreText(last), "mean, while learning");
  html += ReturnsTile("agent, fresh episodes", run.TestReturns(), run.TestMean(), "fresh episodes");
  html += ReturnsTile("random policy", run.RandomReturns(), run.RandomMean(), "episodes");
  html += StepsTile(run);
  html += Tile("frames", ShortNumber(run.Final("frames")),
               fmt::format("{} episodes", Grouped(run.Final("episodes"))));
  return html + SpeedTile(run);
}

std::string Evaluation(const RunData& run) {
  const size_t episodes = run.TestReturns().size();
  if (episodes == 0) return "";
  const bool greedy = run.Config("learn.test_greedy") == "true";
  return fmt::format("the agent after {} frames, {}, on {} fresh episodes",
                     Grouped(run.Final("frames")),
                     greedy ? "taking the most probable action" : "drawing its actions", episodes);
}

// One small chart of columns against updates.
std::string Lines(const RunData& run, const char* title, const char* y_label,
                  std::initializer_list<ColumnCurve> curves) {
  LineChart chart{
      .title = title, .x_label = "update", .y_label = y_label, .width = 560, .height = 240};
  for (const ColumnCurve& curve : curves)
    chart.series.push_back(SeriesOf(run, curve, run.Column("update")));
  return Figure(chart);
}

std::string Returns(const RunData& run) {
  const auto test = run.TestReturns();
  if (test.empty()) return "";
  return "<figure>" +
         Svg(Histogram{.title = "Returns of single episodes",
                       .x_label = "return",
                       .sets = {{"agent", test}, {"random policy", run.RandomReturns()}},
                       .width = 560,
                       .height = 240}) +
         "</figure>";
}

std::string Learning(const RunData& run) {
  std::string html =
      Lines(run, "Loss", "per update",
            {{"loss", "loss", 0}, {"value loss", "value_loss", 1, Stroke::kDashed}}) +
      Lines(run, "Policy loss", "per update", {{"policy loss", "policy_loss", 0}}) +
      Lines(run, "Entropy of the policy", "nats", {{"entropy", "entropy", 2}}) +
      Lines(run, "Explained variance of the returns", "share",
            {{"explained variance", "explained_variance", 3}}) +
      Lines(run, "Importance weight, before clipping", "mean",
            {{"learner's over actor's probability", "importance_weight", 0}}) +
      Lines(run, "Divergence of actor's policy and learner's", "nats", {{"KL", "kl", 1}}) +
      Lines(run, "Norm of the gradient, before clipping", "norm",
            {{"gradient norm", "gradient_norm", 5}}) +
      Lines(run, "Learning rate", "per update",
            {{"learning rate", "learning_rate", 4, Stroke::kSolid, /*as_it_is=*/true}});
  const std::vector<double> cost = run.Column("entropy_cost");
  if (std::any_of(cost.begin(), cost.end(), [&](double c) { return c != cost.front(); }))
    html += Lines(run, "Entropy cost", "per nat", {{"entropy cost", "entropy_cost", 2}});
  return html;
}

std::string Lag(const RunData& run) {
  LineChart lag{.title = "Policy lag: updates between acting and learning",
                .x_label = "update",
                .y_label = "updates",
                .width = 560,
                .height = 240};
  lag.series = {{.name = "mean; band: least to most",
                 .x = run.Column("update"),
                 .y = run.Column("lag_mean"),
                 .low = run.Column("lag_min"),
                 .high = run.Column("lag_max")}};
  std::vector<double> counts;
  for (const auto& line : run.lines) {
    const auto of_line = NumbersOf(line, "lag_histogram");
    counts.resize(std::max(counts.size(), of_line.size()));
    for (size_t i = 0; i < of_line.size(); ++i) counts[i] += of_line[i];
  }
  BarChart histogram{.title = "Policy lag of every step used by the learner",
                     .x_label = "updates",
                     .y_label = "steps, %",
                     .width = 560,
                     .height = 240};
  double total = 0;
  size_t shown = 0;  // up to the last that happened
  for (size_t i = 0; i < counts.size(); ++i) {
    total += counts[i];
    if (counts[i] > 0) shown = i + 1;
  }
  for (size_t i = 0; i < shown; ++i)
    histogram.bars.emplace_back(fmt::format("{}{}", i, i + 1 == counts.size() ? "+" : ""),
                                100 * counts[i] / total);
  if (shown == 0) return Figure(lag);
  return Figure(lag) + "<figure>" + Svg(histogram) + "</figure>";
}

// A column of counts per line as counts per second.
std::vector<double> PerSecond(const RunData& run, const char* column) {
  std::vector<double> values = run.Column(column);
  const std::vector<double> seconds = run.Column("seconds");
  for (size_t i = 0; i < values.size(); ++i)
    values[i] /= i == 0 ? seconds[i] : seconds[i] - seconds[i - 1];
  return values;
}

std::string Queues(const RunData& run) {
  LineChart stalls{.title = "Back-pressure: slots that waited for a free buffer",
                   .x_label = "update",
                   .y_label = "waits/s",
                   .width = 560,
                   .height = 240};
  stalls.series = {{.name = "back-pressure waits",
                    .x = run.Column("update"),
                    .y = PerSecond(run, "stalls"),
                    .colour = 1}};
  return Lines(run, "Queue of unrolls", "unrolls",
               {{"waiting for the learner", "queue_unrolls", 0},
                {"free buffers", "queue_free", 2, Stroke::kDashed}}) +
         Figure(stalls) +
         Lines(run, "Rows of an inference batch", "rows",
               {{"rows, mean", "rows_per_batch", 0},
                {"live slots", "live_slots", 5, Stroke::kDotted}}) +
         Lines(run, "Speed", "frames/s", {{"frames per second", "frames_per_second", 2}});
}

// Work by stage, without waiting: seconds of all threads and actors.
std::string Work(const RunData& run) {
  StackedBars chart{.title = "Work by stage, all threads and actors",
                    .parts = {"environment", "inference", "learner"},
                    .bars = {{"", {}}},
                    .unit = "thread-s",
                    .width = 560};
  chart.bars[0].second = {
      run.Total("seconds_environment"),
      run.Total("seconds_inference") + run.Total("seconds_server"),
      run.Total("seconds_learner_batch") + run.Total("seconds_learner_forward") +
          run.Total("seconds_learner_backward") + run.Total("seconds_learner_step")};
  return Svg(chart);
}

// "learner 97 %, inference 47 %, environment 3 %: bottleneck: learner"
std::string Time(const RunData& run) {
  const double workers = run.Last("environment_workers");
  const auto all = BusyShares([&](const char* name) { return run.Total(name); },
                              std::isnan(workers) ? 0 : workers);
  LineChart busy{.title = "Utilization of each stage",
                 .x_label = "update",
                 .y_label = "%",
                 .width = 560,
                 .height = 240};
  static constexpr Stroke kStrokes[] = {Stroke::kDotted, Stroke::kDashed, Stroke::kSolid};
  for (const StageShare& stage : all) {
    const auto i = static_cast<int>(busy.series.size());
    busy.series.push_back({.name = stage.name, .colour = i, .stroke = kStrokes[i % 3]});
  }
  for (const auto& line : run.lines) {
    for (const StageShare& stage :
         BusyShares([&](const char* name) { return NumberOr(line, name); },
                    NumberOr(line, "environment_workers", 0))) {
      const auto series = std::find_if(busy.series.begin(), busy.series.end(),
                                       [&](const Series& s) { return s.name == stage.name; });
      if (series == busy.series.end()) continue;
      series->x.push_back(NumberOr(line, "update"));
      series->y.push_back(100 * stage.share);
    }
  }
  std::string shares;
  for (const StageShare& stage : all)
    shares +=
        fmt::format("{}{} {:.0f} %", shares.empty() ? "" : ", ", stage.name, 100 * stage.share);
  const std::string bottleneck = Bottleneck(all);
  return "<figure>" + Svg(busy) +
         (bottleneck.empty()
              ? ""
              : fmt::format("<figcaption>Over the whole run: {}. <b>Bottleneck: {}.</b>"
                            "</figcaption>",
                            shares, bottleneck)) +
         "</figure><figure>" +
         TimeBar(run, "Time of the learner", "s",
                 {{"assembling batches", "seconds_learner_batch"},
                  {"forward", "seconds_learner_forward"},
                  {"backward", "seconds_learner_backward"},
                  {"optimizer", "seconds_learner_step"},
                  {"waiting for unrolls", "seconds_learner_wait"}}) +
         TimeBar(run, "Time of the inference server", "s",
                 {{"network", "seconds_inference"},
                  {"around it", "seconds_server"},
                  {"waiting for observations", "seconds_server_wait"}}) +
         Work(run) + "</figure>";
}

std::string Charts(const RunData& run) {
  return Returns(run) + Learning(run) + Lag(run) + Queues(run) + Time(run);
}

// Drops by reason; empty without any.
std::string Drops(const RunData& run) {
  nlohmann::json drops = nlohmann::json::object();
  for (const auto* holder : {run.lines.empty() ? nullptr : &run.lines.back(), &run.finished})
    if (holder != nullptr && holder->contains("drops") && (*holder)["drops"].is_object())
      drops = (*holder)["drops"];
  std::string rows;
  for (const auto& [reason, count] : drops.items()) {
    if (!count.is_number() || count.get<double>() == 0) continue;
    std::string words = reason;
    std::replace(words.begin(), words.end(), '_', ' ');
    rows += fmt::format("<tr><td>{}<td class=\"n\">{}", EscapeHtml(words),
                        Grouped(count.get<double>()));
  }
  if (rows.empty()) return "";
  return "<h3>Dropped</h3><div class=\"wide\"><table><thead><tr><th>what<th>how many</thead>"
         "<tbody>" +
         rows + "</tbody></table></div>";
}

}  // namespace

const KindPage kLearningPage = {.curves = kCurves,
                                .tiles = Tiles,
                                .evaluation = Evaluation,
                                .charts = Charts,
                                .tables = Drops,
                                .hash_name = "parameter hash",
                                .hash = Hash};

}  // namespace samara
