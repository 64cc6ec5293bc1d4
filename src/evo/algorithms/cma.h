// CMA-ES (Hansen, arXiv 1604.00772): one distribution of cma_search.h, moved by the members'
// returns.
#pragma once

#include <memory>
#include <string_view>

#include "evo/algorithms/algorithm.h"

namespace samara {

// The row of the registry.
std::unique_ptr<EvolutionConfig> MakeCmaConfig();
Result<EvolutionSummary> DescribeCma(std::string_view state);

}  // namespace samara
