// Evolution strategies (Salimans et al. 2017, arXiv 1703.03864): gradient ascent on the mean
// fitness of Gaussian perturbations of one centre.
#pragma once

#include <memory>
#include <string_view>

#include "evo/algorithms/algorithm.h"

namespace samara {

// The row of the registry.
std::unique_ptr<EvolutionConfig> MakeEsConfig();
Result<EvolutionSummary> DescribeEs(std::string_view state);

}  // namespace samara
