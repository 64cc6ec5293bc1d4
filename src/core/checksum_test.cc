// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/checksum.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "core/rng.h"

namespace samara {
namespace {

std::vector<std::byte> Bytes(size_t n, uint64_t seed) {
  const CounterRng rng(seed);
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(rng.UniformInt(i, 256));
  return bytes;
}

uint64_t ChecksumOf(const std::vector<std::byte>& bytes) { return Checksum(bytes, 1); }

TEST(ChecksumTest, EveryLevelGivesTheSameNumber) {
  for (const size_t n : {0, 1, 7, 8, 63, 64, 127, 128, 129, 1000, 7056}) {
    // at every alignment
    const auto bytes = Bytes(n + 8, n);
    for (size_t at = 0; at < 8; ++at) {
      const auto part = std::span(bytes).subspan(at, n);
      for (const IsaLevel level : AvailableIsaLevels())
        EXPECT_EQ(TEST_ChecksumAt(level, part, 5), TEST_ChecksumAt(IsaLevel::kPortable, part, 5))
            << n << " bytes at " << at << ", " << Name(level);
    }
  }
}

TEST(ChecksumTest, SeedAndLengthCount) {
  std::set<uint64_t> sums;
  for (uint64_t seed = 0; seed < 10; ++seed)
    for (size_t n = 0; n < 300; ++n) sums.insert(Checksum(std::vector<std::byte>(n), seed));
  EXPECT_EQ(sums.size(), 3000U);
}

// Frames of games: few values, long runs of the same byte.
TEST(ChecksumTest, EverySingleByteCounts) {
  for (const int value : {0, 87, 255}) {
    std::vector<std::byte> frame(1000, static_cast<std::byte>(value));
    const uint64_t whole = ChecksumOf(frame);
    for (std::byte& byte : frame) {
      const std::byte old = byte;
      for (const int change : {1, 128, 255}) {
        byte = old ^ static_cast<std::byte>(change);
        EXPECT_NE(ChecksumOf(frame), whole);
      }
      byte = old;
    }
  }
}

// Remains of a write that was broken off, or came late: the beginning of one frame, the end of
// another.
TEST(ChecksumTest, TornFramesAreSeen) {
  constexpr size_t kBytes = 1000;
  const auto older = Bytes(kBytes, 1);
  for (const bool similar : {false, true}) {
    auto newer = similar ? older : Bytes(kBytes, 2);
    if (similar) newer[0] ^= std::byte{1}, newer[kBytes - 1] ^= std::byte{1};
    std::set<uint64_t> sums = {ChecksumOf(older), ChecksumOf(newer)};
    EXPECT_EQ(sums.size(), 2U);
    auto torn = older;
    for (size_t cut = 1; cut < kBytes; ++cut) {
      torn[cut - 1] = newer[cut - 1];
      if (torn == older || torn == newer) continue;
      EXPECT_NE(ChecksumOf(torn), ChecksumOf(older));
      EXPECT_NE(ChecksumOf(torn), ChecksumOf(newer)) << "torn at " << cut;
    }
  }
}

TEST(ChecksumTest, TheOrderOfWordsCounts) {
  const auto bytes = Bytes(1024, 3);
  const uint64_t whole = ChecksumOf(bytes);
  for (size_t a = 0; a < 128; ++a) {
    for (size_t b = a + 1; b < 128; ++b) {
      auto swapped = bytes;
      std::swap_ranges(swapped.begin() + static_cast<ptrdiff_t>(8 * a),
                       swapped.begin() + static_cast<ptrdiff_t>(8 * a + 8),
                       swapped.begin() + static_cast<ptrdiff_t>(8 * b));
      ASSERT_NE(ChecksumOf(swapped), whole) << a << " and " << b;
    }
  }
}

}  // namespace
}  // namespace samara
