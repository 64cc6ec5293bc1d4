#include "evo/algorithms/registry.h"

#include <algorithm>

#include "core/check.h"
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
       .describe = DescribeGa}};
  return rows;
}

}  // namespace

std::span<const EvolutionRow> EvolutionAlgorithms() { return Rows(); }

const EvolutionRow* FindEvolutionAlgorithm(std::string_view name) {
  const auto row = std::ranges::find(Rows(), name, &EvolutionRow::name);
  return row == Rows().end() ? nullptr : &*row;
}

void RegisterEvolutionAlgorithm(EvolutionRow row) {
  CHECK(FindEvolutionAlgorithm(row.name) == nullptr) << row.name << " is registered twice";
  Rows().push_back(std::move(row));
}

}  // namespace samara
