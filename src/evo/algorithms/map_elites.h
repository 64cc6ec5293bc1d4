// MAP-Elites (Mouret and Clune 2015, arXiv 1504.04909): an archive of the best solution of every
// kind of behaviour.
#pragma once

#include <memory>
#include <string_view>

#include "evo/algorithms/algorithm.h"

namespace samara {

// The row of the registry.
std::unique_ptr<EvolutionConfig> MakeMapElitesConfig();
Result<EvolutionSummary> DescribeMapElites(std::string_view state);

}  // namespace samara
