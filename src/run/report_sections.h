// The parts of a report's page; report.cc puts them together. Pure functions of the runs.
#pragma once

#include <span>
#include <string>

#include "run/plot.h"
#include "run/run_data.h"
#include "run/statistics.h"

namespace samara {

// One run. `id` is its anchor; `page_folder` is where the page will lie, for links to videos.
std::string RunSection(const RunData& run, const std::string& id, const Path& page_folder,
                       bool open);
// Groups of runs side by side, and every run in a line. REQUIRES: ids has the size of runs.
std::string ComparisonSection(std::span<const RunData> runs, std::span<const std::string> ids);

// Fitness and elite against frames (or seconds).
enum class CurveAxis { kFrames, kTime };
LineChart LearningCurve(const RunData& run, CurveAxis axis);

// "840.5 <small>[795.2, 886.0]</small>": a value with its 95 % interval, where there is one.
std::string WithInterval(double value, const Interval& interval);
// The run in a few words: "frostbite, atari/deep-ga-desktop, seed 1"; the folder's name otherwise.
std::string Title(const RunData& run);

}  // namespace samara
