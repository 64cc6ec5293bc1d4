#include "evo/algorithms/registry.h"

#include <algorithm>

#include "core/check.h"
#include "evo/algorithms/ars.h"
#include "evo/algorithms/cma.h"
#include "evo/algorithms/cma_mae.h"
#include "evo/algorithms/es.h"
#include "evo/algorithms/ga.h"
#include "evo/algorithms/ga_ns.h"
#include "evo/algorithms/map_elites.h"
#include "evo/algorithms/ns_es.h"
#include "evo/algorithms/separable.h"
#include "evo/algorithms/ssga.h"

namespace samara {
namespace {

std::vector<EvolutionRow>& Rows() {
  static std::vector<EvolutionRow> rows = {
      {.name = "deep-ga",
       .about = "truncation selection, mutation only, seed-encoded genomes",
       .paper = "Deep GA (Such et al. 2018, arXiv 1712.06567)",
       .config = [] { return MakeGaConfig(); },
       .describe = DescribeGa},
      {.name = "random-search",
       .about = "fresh genomes each generation; the Deep GA without parents",
       .paper = "Such et al. 2018, arXiv 1712.06567",
       .config = [] { return MakeRandomSearchConfig(); },
       .describe = DescribeGa},
      {.name = "ga-ns",
       .about = "the Deep GA with novelty search: the most novel members are the parents",
       .paper = "Such et al. 2018, arXiv 1712.06567",
       .config = [] { return MakeGaNsConfig(); },
       .describe = DescribeGaNs},
      {.name = "map-elites",
       .about = "the best solution of every kind of behaviour, in an archive of cells",
       .paper = "MAP-Elites (Mouret and Clune 2015, arXiv 1504.04909)",
       .config = [] { return MakeMapElitesConfig(); },
       .describe = DescribeMapElites},
      {.name = "cma-mae",
       .about = "CMA-ES searches that climb what improves an archive of cells",
       .paper = "CMA-MAE (Fontaine and Nikolaidis 2023, arXiv 2205.10752)",
       .config = [] { return MakeCmaMaeConfig(); },
       .describe = DescribeCmaMae},
      {.name = "ns-es",
       .about = "evolution strategies on novelty alone, with several centres",
       .paper = "NS-ES (Conti et al. 2018, arXiv 1712.06560)",
       .config = [] { return MakeNsEsConfig(); },
       .describe = DescribeNsEs},
      {.name = "nsr-es",
       .about = "evolution strategies on novelty and reward",
       .paper = "NSR-ES (Conti et al. 2018, arXiv 1712.06560)",
       .config = [] { return MakeNsrEsConfig(); },
       .describe = DescribeNsEs},
      {.name = "nsra-es",
       .about = "the same with a weight of the reward that adapts",
       .paper = "NSRA-ES (Conti et al. 2018, arXiv 1712.06560)",
       .config = [] { return MakeNsraEsConfig(); },
       .describe = DescribeNsEs},
      {.name = "es",
       .former = "openai-es",
       .about = "gradient ascent on the ranks of antithetic perturbations of one centre",
       .paper = "evolution strategies (Salimans et al. 2017, arXiv 1703.03864)",
       .config = [] { return MakeEsConfig(); },
       .describe = DescribeEs},
      {.name = "pgpe",
       .about = "policy gradients with parameter-based exploration, ClipUp",
       .paper = "PGPE (Sehnke et al. 2010), ClipUp (Toklu et al. 2020, arXiv 2008.02387)",
       .config = [] { return MakePgpeConfig(); },
       .describe = DescribeSeparable},
      {.name = "ars",
       .about = "finite differences along the best random directions",
       .paper = "augmented random search (Mania et al. 2018, arXiv 1803.07055)",
       .config = [] { return MakeArsConfig(); },
       .describe = DescribeArs},
      {.name = "snes",
       .about = "natural gradient of a separable normal distribution",
       .paper = "natural evolution strategies (Wierstra et al. 2014, arXiv 1106.4487)",
       .config = [] { return MakeSnesConfig(); },
       .describe = DescribeSeparable},
      {.name = "sep-cma-es",
       .about = "covariance matrix adaptation with a diagonal matrix",
       .paper = "sep-CMA-ES (Ros and Hansen 2008; Hansen, arXiv 1604.00772)",
       .config = [] { return MakeSepCmaConfig(); },
       .describe = DescribeSeparable},
      {.name = "cma-es",
       .about = "covariance matrix adaptation, up to 2,000 parameters",
       .paper = "CMA-ES (Hansen, arXiv 1604.00772; Suttorp, Hansen, Igel 2009)",
       .config = [] { return MakeCmaConfig(); },
       .describe = DescribeCma},
      {.name = "ssga",
       .about = "steady-state GA: one birth at a time, parent and victim by tournament",
       .paper = "safe mutations (Lehman et al. 2018, arXiv 1712.06563)",
       .config = [] { return MakeSsgaConfig(); },
       .describe = DescribeSsga}};
  return rows;
}

}  // namespace

std::span<const EvolutionRow> EvolutionAlgorithms() { return Rows(); }

const EvolutionRow* FindEvolutionAlgorithm(std::string_view name) {
  const auto row = std::ranges::find_if(Rows(), [name](const EvolutionRow& r) {
    return r.name == name || (!r.former.empty() && r.former == name);
  });
  return row == Rows().end() ? nullptr : &*row;
}

void RegisterEvolutionAlgorithm(EvolutionRow row) {
  CHECK(FindEvolutionAlgorithm(row.name) == nullptr) << row.name << " is registered twice";
  Rows().push_back(std::move(row));
}

}  // namespace samara
