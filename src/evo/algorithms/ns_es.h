// Novelty search by evolution strategies (Conti et al. 2018, arXiv 1712.06560): NS-ES, which
// follows novelty alone, NSR-ES, novelty and reward, and NSRA-ES, whose balance of the two adapts.
#pragma once

#include <memory>
#include <string_view>

#include "evo/algorithms/algorithm.h"

namespace samara {

// The rows of the registry.
std::unique_ptr<EvolutionConfig> MakeNsEsConfig();
std::unique_ptr<EvolutionConfig> MakeNsrEsConfig();
std::unique_ptr<EvolutionConfig> MakeNsraEsConfig();
Result<EvolutionSummary> DescribeNsEs(std::string_view state);

}  // namespace samara
