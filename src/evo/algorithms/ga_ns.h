// The genetic algorithm with novelty search (Such et al. 2018, arXiv 1712.06567, section on the
// image hard maze): the Deep GA's population, selected by how novel the members behave.
#pragma once

#include <memory>
#include <string_view>

#include "evo/algorithms/algorithm.h"

namespace samara {

// The row of the registry.
std::unique_ptr<EvolutionConfig> MakeGaNsConfig();
Result<EvolutionSummary> DescribeGaNs(std::string_view state);

}  // namespace samara
