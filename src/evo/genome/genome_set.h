// SPDX-License-Identifier: Apache-2.0 OR MIT
// Genomes that share ancestors as bytes that name each ancestor once: a population after 100,000
// births has lines of hundreds of mutations, which meet a few generations ago.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "evo/genome/genome.h"

namespace samara {

// Versioned. REQUIRES: equal noise and init in all of them.
std::string EncodeGenomes(std::span<const Genome> genomes);
// kBadData on anything but an exact encoding.
Result<std::vector<Genome>> DecodeGenomes(std::string_view bytes);

}  // namespace samara
