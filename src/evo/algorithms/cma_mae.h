// CMA-MAE (Fontaine and Nikolaidis 2023, arXiv 2205.10752): CMA-ES that climbs what improves an
// archive of cells.
#pragma once

#include <memory>
#include <string_view>

#include "evo/algorithms/algorithm.h"

namespace samara {

// The row of the registry.
std::unique_ptr<EvolutionConfig> MakeCmaMaeConfig();
Result<EvolutionSummary> DescribeCmaMae(std::string_view state);

}  // namespace samara
