#include "evo/algorithms/registry.h"

#include <algorithm>

#include "core/check.h"
#include "evo/algorithms/es.h"
#include "evo/algorithms/ga.h"

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
      {.name = "es",
       .former = "openai-es",
       .about = "gradient ascent on the ranks of antithetic perturbations of one centre",
       .paper = "evolution strategies (Salimans et al. 2017, arXiv 1703.03864)",
       .config = [] { return MakeEsConfig(); },
       .describe = DescribeEs}};
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
