// Evolution strategies (Salimans et al. 2017, arXiv 1703.03864): gradient ascent on the mean
// fitness of Gaussian perturbations of one centre.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "evo/algorithms/algorithm.h"

namespace samara {

// The row of the registry.
std::unique_ptr<EvolutionConfig> MakeEsConfig();
Result<EvolutionSummary> DescribeEs(std::string_view state);

// Ranks of `fitness`, scaled to [-0.5, 0.5], the best highest; ties get the mean of their ranks,
// NaN ranks last. REQUIRES: two values or more.
std::vector<double> CentredRanks(std::span<const double> fitness);

}  // namespace samara
