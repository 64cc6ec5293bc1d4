// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "evo/genome/population_hash.h"

#include <bit>

#include "core/check.h"

namespace samara {

Digest PopulationHash(std::span<const Genome> genomes, std::span<const double> fitness,
                      const Genome& elite) {
  CHECK_EQ(genomes.size(), fitness.size());
  return PopulationHash([&](size_t i) { return genomes[i]; }, fitness, elite);
}

Digest PopulationHash(const std::function<Genome(size_t)>& genome, std::span<const double> fitness,
                      const Genome& elite) {
  Sha256 hash;
  for (size_t i = 0; i < fitness.size(); ++i) UpdateHash(hash, genome(i));
  for (double value : fitness) hash.UpdateU64(std::bit_cast<uint64_t>(value));
  UpdateHash(hash, elite);
  return hash.Finish();
}

}  // namespace samara
