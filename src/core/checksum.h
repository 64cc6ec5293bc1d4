// SPDX-License-Identifier: Apache-2.0 OR MIT
// A checksum of memory against torn and stray writes, near memory's speed; not against forgery, and
// never stored: its definition may change between versions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/cpu.h"

namespace samara {

// The same number at every level of the instruction set.
uint64_t Checksum(std::span<const std::byte> data, uint64_t seed);
// Test only. REQUIRES: the CPU has the level.
uint64_t TEST_ChecksumAt(IsaLevel level, std::span<const std::byte> data, uint64_t seed);

// One step of a chain over a few words, a bijection of `word` for every `h`.
inline uint64_t MixWord(uint64_t h, uint64_t word) {
  h = (h ^ word) * 0x9E3779B97F4A7C15;
  return h ^ (h >> 29);
}

}  // namespace samara
