// Where the episodes of a run's populations ended, as its journal has them.
#pragma once

#include <vector>

#include "report/map_chart.h"
#include "report/run_data.h"

namespace samara {

// One entry a generation with positions; none when the run has no journal that can be read, or its
// environment no positions of two numbers.
std::vector<EndPoints> EndPointsOf(const RunData& run);

// The map of a run in a maze or a trap; empty for other environments and for runs without end
// points.
std::string RunMap(const RunData& run, SvgUse use);

}  // namespace samara
