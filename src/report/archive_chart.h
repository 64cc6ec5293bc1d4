// The archive of a quality-diversity run as a picture: cells of behaviours, coloured by return.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "env/map.h"
#include "report/plot.h"
#include "report/run_data.h"

namespace samara {

struct ArchivedSolution {
  uint64_t cell = 0;  // the second dimension counts fastest
  double fitness = 0;
};

// `cells` in each of two dimensions between the corners of `map`, whose walls are drawn over them.
std::string ArchiveSvg(const EnvironmentMap& map, uint32_t cells,
                       std::span<const ArchivedSolution> solutions, const std::string& title,
                       SvgUse use = SvgUse::kInline);

// Returns the picture of a run folder with an archive.csv; empty for other runs, and where
// behaviours have other than two dimensions.
std::string RunArchive(const RunData& run, SvgUse use);

}  // namespace samara
