// Reports: one self-contained HTML page over any number of runs, and a run's learning curve.
#pragma once

#include <span>
#include <string_view>

#include "core/files.h"
#include "core/status.h"

namespace samara {

// Writes `html` (atomically): a comparison when there are several runs (runs that differ in nothing
// but seed and fleet are one group), then each run with its result, curves, stage times, what
// its kind has to show (lineages; losses, lag and queues) and configuration. Nothing is loaded from
// elsewhere; a run's last video is embedded while small and linked otherwise. The same runs give
// the same bytes. kNoInput, kBadData: a run that is missing or damaged, named. kUsage: no runs.
Status WriteReport(std::span<const Path> runs, const RootedPath& html);

// Whether a page is one that WriteReport wrote.
bool IsReport(std::string_view html);

// The learning curve (returns against frames) as an SVG picture: of one run, or of several, means
// over each group. kConfig when they played several games.
Status WriteLearningCurve(std::span<const Path> runs, const RootedPath& svg);

// A map of the run's maze or trap with the end points of its populations, coloured by generation,
// as an SVG picture. False when there is nothing to draw: another task, or no end points.
Result<bool> WriteMap(const Path& run, const RootedPath& svg);
// The same of its archive of solutions.
Result<bool> WriteArchive(const Path& run, const RootedPath& svg);

}  // namespace samara
