// Sections of a report for evolution only: elite, diversity of lineages, time by phase.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/format.h"
#include "report/archive_chart.h"
#include "report/end_points.h"
#include "report/report_sections.h"

namespace samara {
namespace {

constexpr ColumnCurve kCurves[] = {
    {"population, best", "fitness_max", 1, Stroke::kDashed},
    {"mean", "fitness_mean", 0, Stroke::kSolid},
    {"median", "fitness_median", 5, Stroke::kDotted},
    {"elite, validation", "elite_validation_mean", 2, Stroke::kSolid},
    {"elite, test", "elite_test_mean", 3, Stroke::kPoints},
};

std::string Tiles(const RunData& run) {
  std::string html =
      ReturnsTile("elite, fresh episodes", run.TestReturns(), run.TestMean(), "fresh episodes");
  if (const double v = run.Last("elite_validation_mean"); html.empty() && !std::isnan(v))
    html = Tile("elite, validation", ScoreText(v), "not tested on fresh episodes yet");
  html += ReturnsTile("random policy", run.RandomReturns(), run.RandomMean(), "episodes");
  const double test = run.Last("frames_test");
  return html + StepsTile(run) +
         Tile("frames", ShortNumber(run.Final("frames")),
              test > 0 ? fmt::format("and {} in tests", ShortNumber(test))
                       : "population and validation") +
         SpeedTile(run);
}

// Frames of training before the elite's latest test.
double FramesAtTest(const RunData& run) {
  if (!NumbersOf(run.finished, "elite_returns").empty()) return run.Final("frames");
  for (auto g = run.lines.rbegin(); g != run.lines.rend(); ++g)
    if (!NumbersOf(*g, "elite_test_returns").empty()) return NumberOr(*g, "frames");
  return std::numeric_limits<double>::quiet_NaN();
}

std::string Evaluation(const RunData& run) {
  const size_t episodes = run.TestReturns().size();
  if (episodes == 0) return "";
  const double cap = std::strtod(run.Config("env.test_frames_max").c_str(), nullptr);
  return fmt::format(
      "the elite after {} frames, without random actions (epsilon 0), on {} fresh episodes{}",
      Grouped(FramesAtTest(run)), episodes,
      cap > 0 ? fmt::format(" of at most {} frames", Grouped(cap)) : "");
}

std::string Returns(const RunData& run) {
  const auto elite = run.TestReturns();
  if (elite.empty()) return "";
  Histogram chart{.title = "Returns of single episodes",
                  .x_label = "return",
                  .sets = {{"elite", elite}, {"random policy", run.RandomReturns()}},
                  .width = 560,
                  .height = 300};
  return "<figure>" + Svg(chart) + "</figure>";
}

// Empty for an algorithm that has no lineages.
std::string Lineages(const RunData& run) {
  if (std::isnan(run.Last("lineages"))) return "";
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
  return Figure(chart);
}

std::string Stages(const RunData& run) {
  return "<figure>" +
         TimeBar(run, "Time by phase", "s",
                 {{"population", "seconds_population"},
                  {"validation", "seconds_validation"},
                  {"test", "seconds_test"},
                  {"between", "seconds_between"}}) +
         TimeBar(run, "Time by stage, all threads and actors", "thread-s",
                 {{"decode", "seconds_materialise"},
                  {"inference", "seconds_inference"},
                  {"environment", "seconds_environment"}}) +
         "</figure>";
}

std::string Picture(const std::string& svg) {
  return svg.empty() ? "" : "<figure>" + svg + "</figure>";
}

std::string Charts(const RunData& run) {
  return Picture(RunMap(run, SvgUse::kInline)) + Picture(RunArchive(run, SvgUse::kInline)) +
         Returns(run) + Lineages(run) + Stages(run);
}

std::string NoTables(const RunData&) { return ""; }

std::string Hash(const RunData& run) {
  return run.lines.empty() ? "" : TextOr(run.lines.back(), "population_hash", "").substr(0, 16);
}

}  // namespace

const KindPage kEvolutionPage = {.curves = kCurves,
                                 .tiles = Tiles,
                                 .evaluation = Evaluation,
                                 .charts = Charts,
                                 .tables = NoTables,
                                 .hash_name = "population hash",
                                 .hash = Hash};

}  // namespace samara
