// The evolution algorithms: one row each.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "evo/algorithms/algorithm.h"

namespace samara {

struct EvolutionRow {
  std::string name;         // the value of run.algorithm
  std::string former = {};  // an older name, which configurations and journals may have
  std::string about;        // one line
  std::string paper;
  std::unique_ptr<EvolutionConfig> (*config)();  // a new one, with its defaults
  // Summary of a state's bytes (EncodeState); kBadData when they are damaged.
  Result<EvolutionSummary> (*describe)(std::string_view state);
};

std::span<const EvolutionRow> EvolutionAlgorithms();
// By its name or its former one; null: there is none.
const EvolutionRow* FindEvolutionAlgorithm(std::string_view name);
// Adds the row of a program outside this tree, before the program reads a configuration. REQUIRES:
// no row has its name.
void RegisterEvolutionAlgorithm(EvolutionRow row);

}  // namespace samara
