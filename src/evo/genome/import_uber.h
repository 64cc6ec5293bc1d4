// The genome file of the published elite (tests/data/uber_frostbite_genome.json): one initial index
// into the noise table, mutation indices that share one power.
#pragma once

#include <string>
#include <string_view>

#include "core/status.h"
#include "evo/genome/genome.h"

namespace samara {

struct UberElite {
  Genome genome;        // kTable, kFanIn
  std::string game;     // "frostbite"
  std::string network;  // "LargeModel", a name of MakeNetwork
};

// Reads the JSON object with exactly these members:
//   source                text, free
//   game, network         text
//   noise_table           {"generator": "NumPy RandomState(123).randn", "count": 250000000,
//                          "dtype": "float32"}: the only table there is
//   initial_index, mutation_indices (array)   whole numbers in [0, 250000000 - parameter_count]
//   mutation_power        a number above 0, at most kMutationPowerMax, narrowed to float32
// parameter_count: of the network that will play. A caller that learns the network from this file
// passes 0 first and calls CheckKeys afterwards. kBadData names the member, what it is and what was
// expected.
Result<UberElite> ImportUber(std::string_view json, size_t parameter_count = 0);

}  // namespace samara
