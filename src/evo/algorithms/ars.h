// Augmented random search (Mania, Guy, Recht 2018, arXiv 1803.07055).
#pragma once

#include <memory>
#include <string_view>

#include "evo/algorithms/algorithm.h"

namespace samara {

// The row of the registry.
std::unique_ptr<EvolutionConfig> MakeArsConfig();
Result<EvolutionSummary> DescribeArs(std::string_view state);

}  // namespace samara
