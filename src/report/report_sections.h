// The parts of a report's page; report.cc puts them together. Pure functions of the runs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/statistics.h"
#include "report/plot.h"
#include "report/run_data.h"

namespace samara {

// One run. `id` is its anchor; `page_folder` is where the page will lie, for links to videos.
std::string RunSection(const RunData& run, const std::string& id, const Path& page_folder,
                       bool open);
// Groups of runs side by side, and every run in a line. REQUIRES: ids has the size of runs.
std::string ComparisonSection(std::span<const RunData> runs, std::span<const std::string> ids);

// Means over the runs of each group with their intervals, one chart per game and kind of run.
std::vector<LineChart> GroupLearningCurves(std::span<const RunData> runs);

// Returns against frames (or seconds).
enum class CurveAxis { kFrames, kTime };
LineChart LearningCurve(const RunData& run, CurveAxis axis);

// Sections for one kind of run; report_evolution.cc and report_learning.cc have one each.
struct ColumnCurve {
  const char *name, *column;
  int colour = 0;
  Stroke stroke = Stroke::kSolid;
  bool as_it_is = false;  // not smoothed: a mean over time already, or set and not measured
};
Series SeriesOf(const RunData& run, const ColumnCurve& curve, std::vector<double> x);
struct KindPage {
  std::span<const ColumnCurve> curves;        // of the learning curve
  std::string (*tiles)(const RunData&);       // the result in a few large numbers
  std::string (*evaluation)(const RunData&);  // "the elite after ... on 200 fresh episodes"; empty
                                              // when nothing was tested
  std::string (*charts)(const RunData&);      // figures after the learning curves
  std::string (*tables)(const RunData&);      // after all figures
  const char* hash_name;
  std::string (*hash)(const RunData&);  // of the result, shortened or whole
};
extern const KindPage kEvolutionPage, kLearningPage;

// Parts that both use. The mean of returns with its interval; `of` says what they are. Empty when
// there is no mean.
std::string Tile(const std::string& name, const std::string& value_html,
                 const std::string& note_html);
std::string ReturnsTile(const std::string& name, const std::vector<double>& returns, double mean,
                        const std::string& of);
std::string StepsTile(const RunData& run);
std::string SpeedTile(const RunData& run);
// One stacked bar: names, and columns of seconds that are summed over the run.
std::string TimeBar(const RunData& run, const char* title, const char* unit,
                    const std::vector<std::pair<std::string, const char*>>& columns);

// The chart as a figure; empty where no line of it has two points.
std::string Figure(const LineChart& chart);

// "840.5 <small>[795.2, 886.0]</small>": a value with its 95 % interval, where there is one.
std::string WithInterval(double value, const Interval& interval);
// The run in a few words: "frostbite, atari/deep-ga-desktop, seed 1"; the folder's name otherwise.
std::string Title(const RunData& run);

}  // namespace samara
