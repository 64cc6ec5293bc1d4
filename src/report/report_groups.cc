#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "core/format.h"
#include "report/reference_scores.h"
#include "report/report_sections.h"

namespace samara {
namespace {

constexpr size_t kSeedsWanted = 5;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Runs that differ in nothing but seed, name and fleet.
struct Group {
  std::string label;
  std::vector<const RunData*> runs;

  std::vector<double> Scores() const {
    std::vector<double> scores;
    for (const RunData* run : runs)
      if (const double mean = run->TestMean(); !std::isnan(mean)) scores.push_back(mean);
    return scores;
  }
};

// A word for each kind of run there is: "elite", "agent", "elite or agent".
std::string EachKind(const std::vector<Group>& groups,
                     const std::function<std::string(const RunKind&)>& word) {
  std::string words;
  for (const RunKind* kind : {&kEvolutionKind, &kLearningKind})
    if (std::any_of(groups.begin(), groups.end(),
                    [&](const Group& group) { return group.runs[0]->kind == kind; }))
      words += (words.empty() ? "" : " or ") + word(*kind);
  return words;
}

using Config = std::map<std::string, std::string>;

Config Identity(const RunData& run) {
  Config config;
  for (const auto& [key, value] : run.config)
    if (key != "run.seed" && key != "run.name" && key != "run.out" && !key.starts_with("fleet."))
      config[key] = value;
  config["preset"] = run.preset;
  config["game"] = run.game;
  return config;
}

// "frostbite, atari/deep-ga", and what else tells groups of that name apart: "ga.population=100".
void Label(std::map<Config, Group>& groups) {
  std::map<std::string, std::vector<const Config*>> same;
  for (auto& [config, group] : groups) {
    const RunData& run = *group.runs.front();
    group.label = run.game + (run.game.empty() || run.preset.empty() ? "" : ", ") + run.preset;
    if (group.label.empty()) group.label = run.name;
    same[group.label].push_back(&config);
  }
  for (auto& [config, group] : groups) {
    const auto& rivals = same[group.label];
    std::string differences;
    for (const auto& [key, value] : config)
      for (const Config* rival : rivals)
        if (const auto other = rival->find(key); other == rival->end() || other->second != value) {
          differences += ", " + key + "=" + value;
          break;
        }
    group.label += differences;
  }
}

std::vector<Group> MakeGroups(std::span<const RunData> runs) {
  std::map<Config, Group> groups;
  for (const RunData& run : runs) groups[Identity(run)].runs.push_back(&run);
  Label(groups);
  std::vector<Group> ordered;
  ordered.reserve(groups.size());
  for (auto& [config, group] : groups) ordered.push_back(std::move(group));
  std::sort(ordered.begin(), ordered.end(),
            [](const Group& a, const Group& b) { return a.label < b.label; });
  return ordered;
}

double MedianOf(const Group& group, double (*value)(const RunData&)) {
  std::vector<double> values;
  for (const RunData* run : group.runs)
    if (const double v = value(*run); !std::isnan(v)) values.push_back(v);
  return Median(values);
}

// With several runs the runs are resampled (each counts once, by its test's mean); with one run
// its episodes are.
std::string GroupRow(const Group& group) {
  const std::vector<double> scores = group.Scores();
  const bool by_episode = scores.size() == 1 && !group.runs[0]->TestReturns().empty();
  const std::vector<double> values =
      by_episode && group.runs.size() == 1 ? group.runs[0]->TestReturns() : scores;
  std::string row = fmt::format(
      "<tr><td>{}<td class=\"n\">{}<td class=\"n\">{}", EscapeHtml(group.label), group.runs.size(),
      ShortNumber(MedianOf(group, [](const RunData& r) { return r.Last("frames"); })));
  for (const auto& statistic : {Mean, Median, InterquartileMean}) {
    const Interval interval =
        values.size() < 2 ? Interval{kNan, kNan} : BootstrapInterval(values, statistic);
    row += "<td class=\"n\">" + WithInterval(statistic(values), interval);
  }
  const double random = MedianOf(group, [](const RunData& r) { return r.RandomMean(); });
  return row + fmt::format("<td class=\"n\">{}<td>{}", ScoreText(random),
                           values.size() < 2                ? "no interval"
                           : values.size() == scores.size() ? "runs"
                                                            : "episodes of the one run");
}

std::string GroupTable(const std::vector<Group>& groups) {
  std::string html =
      "<div class=\"wide\"><table><thead><tr><th>group<th>runs<th>frames, median<th>mean<th>median"
      "<th>interquartile mean<th>random policy<th>resampled</thead><tbody>";
  bool few = false;
  for (const Group& group : groups) {
    html += GroupRow(group);
    few = few || group.runs.size() < kSeedsWanted;
  }
  html += "</tbody></table></div><p class=\"note\">Scores are means of the " +
          EachKind(groups, [](const RunKind& kind) { return kind.agent; }) +
          " over fresh test episodes. Brackets hold 95 % percentile bootstrap intervals (10,000 "
          "resamples).</p>";
  if (few)
    html += fmt::format(
        "<p class=\"warning\">A group with fewer than {} seeds says little about how the method "
        "does in general: its interval may be too narrow.</p>",
        kSeedsWanted);
  return html;
}

// The last value of `column` at or before `frames`; NaN before the first.
double StepValue(const std::vector<double>& x, const std::vector<double>& y, double frames) {
  double value = kNan;
  for (size_t i = 0; i < x.size() && !(x[i] > frames); ++i)
    if (std::isfinite(y[i])) value = y[i];
  return value;
}

// Mean of a column of metrics over the runs of a group, with its interval.
Series GroupCurve(const Group& group, const char* column, int colour) {
  constexpr int kPoints = 60;
  Series series{.name = group.label, .colour = colour};
  series.stroke = colour < 6 ? Stroke::kSolid : Stroke::kDashed;
  double first = 0, last = std::numeric_limits<double>::infinity();
  std::vector<std::pair<std::vector<double>, std::vector<double>>> curves;
  for (const RunData* run : group.runs) {
    if (run->lines.empty() || std::isnan(run->Last("frames"))) continue;
    curves.emplace_back(run->Column("frames"), run->Column(column));
    first = std::max(first, std::isfinite(curves.back().first[0]) ? curves.back().first[0] : 0.0);
    last = std::min(last, run->Last("frames"));
  }
  if (curves.empty()) return series;
  const bool band = curves.size() > 1;
  for (int i = 0; i < kPoints; ++i) {
    const double x = first + (last - first) * i / (kPoints - 1);
    if (i > 0 && x <= series.x.back()) break;
    std::vector<double> values;
    for (const auto& [frames, of_run] : curves)
      if (const double v = StepValue(frames, of_run, x); !std::isnan(v)) values.push_back(v);
    series.x.push_back(x);
    series.y.push_back(Mean(values));
    if (!band) continue;
    const Interval interval = BootstrapInterval(values, Mean, {.resamples = 1000});
    series.low.push_back(interval.low);
    series.high.push_back(interval.high);
  }
  return series;
}

// One chart per game: returns of different games share no scale.
std::vector<LineChart> CurvesOf(const std::vector<Group>& groups) {
  std::map<std::string, LineChart> charts;
  std::map<std::string, const RunKind*> kinds;  // nullptr: both
  for (const Group& group : groups) {
    const auto [of_game, first] = kinds.emplace(group.runs[0]->game, group.runs[0]->kind);
    if (!first && of_game->second != group.runs[0]->kind) of_game->second = nullptr;
  }
  for (const Group& group : groups) {
    const std::string& game = group.runs[0]->game;
    const RunKind& kind = *group.runs[0]->kind;
    const bool both = kinds[game] == nullptr;
    LineChart& chart = charts[game];
    chart.title =
        (both ? std::string("Return") : kind.curve_name) + (game.empty() ? "" : ", " + game);
    chart.x_label = both ? "frames" : kind.frames;
    chart.y_label = "return";
    chart.width = 560;
    chart.height = 360;
    chart.series.push_back(GroupCurve(group, kind.curve, static_cast<int>(chart.series.size())));
    if (both) chart.series.back().name += std::string(", ") + kind.curve_short;
    const double random = MedianOf(group, [](const RunData& r) { return r.RandomMean(); });
    if (chart.references.empty() && !std::isnan(random))
      chart.references.emplace_back("random policy", random);
  }
  std::vector<LineChart> in_order;
  in_order.reserve(charts.size());
  for (auto& [of, chart] : charts) in_order.push_back(std::move(chart));
  return in_order;
}

// A metric that is compared over groups, and what its chart is called.
struct Metric {
  const RunKind* kind;
  const char *column, *title, *unit;
};
constexpr Metric kMetrics[] = {
    {&kEvolutionKind, "fitness_mean", "Population, mean return", "return"},
    {&kEvolutionKind, "fitness_max", "Population, best return", "return"},
    {&kEvolutionKind, "lineages", "Initial genomes among the parents", "genomes"},
    {&kLearningKind, "loss", "Loss", "per update"},
    {&kLearningKind, "value_loss", "Value loss", "per update"},
    {&kLearningKind, "entropy", "Entropy of the policy", "nats"},
    {&kLearningKind, "explained_variance", "Explained variance of the returns", "share"},
    {&kLearningKind, "gradient_norm", "Norm of the gradient, before clipping", "norm"},
    {&kLearningKind, "lag_mean", "Policy lag", "updates"},
    {nullptr, "frames_per_second", "Speed", "frames/s"},
};

// The groups' curves of every metric that at least one has, in a part that starts folded.
std::string Metrics(const std::vector<Group>& groups) {
  std::string figures;
  for (const Metric& metric : kMetrics) {
    LineChart chart{.title = metric.title,
                    .x_label = "frames",
                    .y_label = metric.unit,
                    .width = 560,
                    .height = 280};
    for (const Group& group : groups)
      if (metric.kind == nullptr || metric.kind == group.runs[0]->kind)
        chart.series.push_back(
            GroupCurve(group, metric.column, static_cast<int>(chart.series.size())));
    figures += Figure(chart);
  }
  if (figures.empty()) return "";
  return "<details><summary>Metrics over the runs</summary><div class=\"charts\">" + figures +
         "</div></details>";
}

std::string GroupCurves(const std::vector<Group>& groups) {
  std::string html = "<div class=\"charts\">";
  for (const LineChart& chart : CurvesOf(groups)) html += Figure(chart);
  return html + "</div>" + Metrics(groups) +
         "<p class=\"note\">Lines are means over the runs of a group, bands their 95 % bootstrap "
         "intervals, both as far as every run of the group has come.</p>";
}

// Human-normalised scores over several Atari games, one row per preset.
std::string AtariAggregate(std::span<const RunData> runs) {
  std::map<std::string, std::map<std::string, std::vector<double>>> by_preset;
  for (const RunData& run : runs)
    if (const auto scale = ScaleOfGame(run.game); scale && !std::isnan(run.TestMean()))
      by_preset[run.preset][run.game].push_back(scale->Normalised(run.TestMean()));
  std::string rows;
  LineChart profile{.title = "Performance profile",
                    .x_label = "human-normalised score",
                    .y_label = "share of runs above it",
                    .width = 560,
                    .height = 320};
  for (const auto& [preset, games] : by_preset) {
    if (games.size() < 2) continue;
    std::vector<std::vector<double>> strata;
    std::vector<double> all, means;
    for (const auto& [game, scores] : games) {
      strata.push_back(scores);
      all.insert(all.end(), scores.begin(), scores.end());
      means.push_back(Mean(scores));
    }
    const auto gap = [](std::span<const double> scores) {
      double sum = 0;
      for (double s : scores) sum += std::min(s, 1.0);
      return 1 - sum / static_cast<double>(scores.size());
    };
    rows += fmt::format("<tr><td>{}<td class=\"n\">{}<td class=\"n\">{}", EscapeHtml(preset),
                        games.size(), all.size());
    for (const Statistic& statistic :
         {Statistic(Median), Statistic(Mean), Statistic(InterquartileMean), Statistic(gap)})
      rows += "<td class=\"n\">" +
              WithInterval(statistic(all), StratifiedBootstrapInterval(strata, statistic));
    rows += fmt::format("<td class=\"n\">{}",
                        std::count_if(means.begin(), means.end(), [](double m) { return m >= 1; }));
    Series series{.name = preset, .colour = static_cast<int>(profile.series.size())};
    const double high = std::max(1.0, *std::max_element(all.begin(), all.end()));
    for (int i = 0; i <= 100; ++i) {
      const double tau = high * i / 100;
      series.x.push_back(tau);
      series.y.push_back(static_cast<double>(std::count_if(all.begin(), all.end(),
                                                           [&](double s) { return s > tau; })) /
                         static_cast<double>(all.size()));
    }
    profile.series.push_back(std::move(series));
  }
  if (rows.empty()) return "";
  return "<h3>Over games, human-normalised</h3><div class=\"wide\"><table><thead><tr><th>preset"
         "<th>games<th>runs<th>median<th>mean<th>interquartile mean<th>optimality gap<th>games at "
         "human level</thead><tbody>" +
         rows +
         "</tbody></table></div><p class=\"note\">0 is random play, 1 a human; the table of the 57 "
         "Atari games, with Video Pinball's random score taken as 0. Intervals: stratified "
         "bootstrap, runs resampled within each game.</p><figure>" +
         Svg(profile) + "</figure>";
}

std::string EveryRun(std::span<const RunData> runs, std::span<const std::string> ids,
                     const std::vector<Group>& groups) {
  std::string html = fmt::format(
      "<h3>Every run</h3><div class=\"wide\"><table><thead><tr><th>run<th>seed<th>{}"
      "<th>frames<th>time<th>{}, mean of fresh episodes<th>median<th>episodes<th>random policy"
      "</thead><tbody>",
      EachKind(groups, [](const RunKind& kind) { return kind.step + std::string("s"); }),
      EachKind(groups, [](const RunKind& kind) { return kind.agent; }));
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunData& run = runs[i];
    const auto returns = run.TestReturns();
    html += fmt::format(
        "<tr><td><a href=\"#{}\">{}</a><td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}"
        "<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}<td "
        "class=\"n\">{}",
        ids[i], EscapeHtml(run.name), EscapeHtml(run.seed), Grouped(run.Last(run.kind->step)),
        ShortNumber(run.Last("frames")), DurationText(run.Last("seconds")),
        WithInterval(run.TestMean(), BootstrapInterval(returns, Mean)), ScoreText(Median(returns)),
        returns.size(), ScoreText(run.RandomMean()));
  }
  return html + "</tbody></table></div>";
}

}  // namespace

std::vector<LineChart> GroupLearningCurves(std::span<const RunData> runs) {
  return CurvesOf(MakeGroups(runs));
}

std::string ComparisonSection(std::span<const RunData> runs, std::span<const std::string> ids) {
  const std::vector<Group> groups = MakeGroups(runs);
  return "<section><h2>Comparison</h2>" + GroupTable(groups) + GroupCurves(groups) +
         AtariAggregate(runs) + EveryRun(runs, ids, groups) + "</section>";
}

}  // namespace samara
