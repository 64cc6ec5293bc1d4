// SPDX-License-Identifier: Apache-2.0 OR MIT
// The hash that names a generation's result: equal for any number of threads, actors and kills.
#pragma once

#include <functional>
#include <span>

#include "core/sha256.h"
#include "evo/genome/genome.h"

namespace samara {

// SHA-256 over the ordered genomes' encodings, the fitness values' bits (little-endian float64, in
// the same order) and the elite's encoding, nothing else.
// REQUIRES: one fitness per genome.
Digest PopulationHash(std::span<const Genome> genomes, std::span<const double> fitness,
                      const Genome& elite);
// The same of genomes that are made one at a time.
Digest PopulationHash(const std::function<Genome(size_t)>& genome, std::span<const double> fitness,
                      const Genome& elite);

}  // namespace samara
