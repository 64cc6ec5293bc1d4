// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/rng.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numeric>
#include <set>

namespace samara {
namespace {

constexpr int kDraws = 200'000;

// Pearson's statistic of equally likely bins is below this for all but one seed in a million.
double ChiSquareLimit(size_t bins) {
  const auto degrees = static_cast<double>(bins - 1);
  return degrees + 5 * std::sqrt(2 * degrees) + 15;
}

double ChiSquare(const std::vector<int>& counts) {
  const double expected =
      std::accumulate(counts.begin(), counts.end(), 0.0) / static_cast<double>(counts.size());
  double sum = 0;
  for (const int count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

// Random123's tests/kat_vectors, "philox4x32 10"
TEST(RngTest, PhiloxMatchesThePublishedVectors) {
  struct Vector {
    std::array<uint32_t, 4> counter;
    std::array<uint32_t, 2> key;
    std::array<uint32_t, 4> block;
  };
  const uint32_t ones = 0xffffffff;
  const Vector vectors[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{ones, ones, ones, ones}, {ones, ones}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const auto& [counter, key, block] : vectors) EXPECT_EQ(Philox4x32(counter, key), block);
}

// A transcription of the mapping into Python's integers, checked against the vectors above: every
// argument is above 32 bits somewhere. A change here changes every population hash.
TEST(RngTest, TheMappingIsFixed) {
  EXPECT_EQ(DeriveKey(0, Purpose::kInitialGenome), 0xf26728db1bec08b0U);
  EXPECT_EQ(DeriveKey((uint64_t{1} << 63) + 1, Purpose::kBootstrap, uint64_t{1} << 33, 9,
                      uint64_t{1} << 35),
            0xadfc38e6b14daefdU);
  const uint64_t key = DeriveKey(7, Purpose::kMutation, 3, (uint64_t{1} << 40) + 5, 11);
  EXPECT_EQ(key, 0xcd403f568f1398d7U);
  const CounterRng rng(key);
  const uint64_t index = 5'000'000'001;
  EXPECT_EQ(rng.Bits(index), 0x2cee6d3eU);
  EXPECT_EQ(rng.Bits64(index), 0xb5fdbab1f7a17581U);
  EXPECT_EQ(rng.Uniform(index), 0.8269110314775464);
  EXPECT_EQ(rng.UniformInt(index, 1'000'003), 710'904U);
  EXPECT_DOUBLE_EQ(rng.Normal(index), -0.64488484932955);
}

TEST(RngTest, KeysDoNotCollide) {
  const uint64_t numbers[] = {0, 1, 2, 3, 1000, uint64_t{1} << 32, UINT64_MAX};
  std::set<uint64_t> keys;
  size_t count = 0;
  for (const uint64_t seed : numbers) {
    for (uint32_t purpose = 1; purpose <= static_cast<uint32_t>(Purpose::kBootstrap); ++purpose) {
      for (const uint64_t generation : numbers) {
        for (const uint64_t individual : numbers) {
          for (const uint64_t episode : numbers) {
            keys.insert(
                DeriveKey(seed, static_cast<Purpose>(purpose), generation, individual, episode));
            ++count;
          }
        }
      }
    }
  }
  EXPECT_EQ(count, 12U * 7 * 7 * 7 * 7);
  EXPECT_EQ(keys.size(), count);
}

TEST(RngTest, UniformIntIsTheExactShareOfTheBits) {
  __extension__ using Wide = unsigned __int128;
  const CounterRng rng(1);
  for (const uint64_t n : {1U, 2U, 3U, 18U, 1'000'003U, 0x80000001U, 0xffffffffU}) {
    for (uint64_t i = 0; i < 1'000; ++i) {
      const uint64_t draw = rng.UniformInt(i, n);
      ASSERT_LT(draw, n);
      ASSERT_EQ(draw, static_cast<uint64_t>(Wide{rng.Bits64(i)} * n >> 64)) << n << ", draw " << i;
    }
  }
}

TEST(RngTest, UniformIntIsUniform) {
  const CounterRng rng(2);
  for (const size_t n : {2, 3, 7, 18, 1'000}) {
    std::vector<int> counts(n);
    for (int i = 0; i < kDraws; ++i) ++counts[rng.UniformInt(i, n)];
    EXPECT_LT(ChiSquare(counts), ChiSquareLimit(n)) << n;
  }
}

TEST(RngTest, UniformFillsItsInterval) {
  const CounterRng rng(3);
  std::vector<int> counts(256);
  for (int i = 0; i < kDraws; ++i) {
    const double u = rng.Uniform(i);
    ASSERT_TRUE(u >= 0 && u < 1) << u;
    ++counts[static_cast<size_t>(256 * u)];
  }
  EXPECT_LT(ChiSquare(counts), ChiSquareLimit(256));
}

// The largest distance between the distribution of the draws and the normal one; Kolmogorov's limit
// is exceeded by one seed in a million at 2.7 / sqrt(n).
TEST(RngTest, NormalIsNormal) {
  const CounterRng rng(4);
  std::vector<double> draws(kDraws);
  for (int i = 0; i < kDraws; ++i) draws[i] = rng.Normal(i);
  std::sort(draws.begin(), draws.end());
  double distance = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double exact = 0.5 * std::erfc(-draws[i] / std::sqrt(2.0));
    distance = std::max({distance, exact - i / double{kDraws}, (i + 1) / double{kDraws} - exact});
  }
  EXPECT_LT(distance, 2.7 / std::sqrt(kDraws));
}

// Streams that differ by one step of one argument share no more bits than strangers do.
TEST(RngTest, NeighboursAreIndependent) {
  const auto key = [](uint64_t g, uint64_t i, uint64_t e) {
    return DeriveKey(1, Purpose::kMutation, g, i, e);
  };
  const std::pair<uint64_t, uint64_t> neighbours[] = {
      {key(0, 0, 0), key(1, 0, 0)},
      {key(0, 0, 0), key(0, 1, 0)},
      {key(0, 0, 0), key(0, 0, 1)},
      {key(0, 0, 0), DeriveKey(1, Purpose::kParentChoice)},
      {key(0, 0, 0), DeriveKey(2, Purpose::kMutation)},
      {6, 7},
  };
  for (const auto& [a, b] : neighbours) {
    int64_t different = 0;
    for (int i = 0; i < kDraws; ++i)
      different += std::popcount(CounterRng(a).Bits(i) ^ CounterRng(b).Bits(i));
    // 32 fair coins a draw
    EXPECT_NEAR(static_cast<double>(different), 16.0 * kDraws, 5 * std::sqrt(8.0 * kDraws));
  }
}

TEST(RngTest, SuccessiveDrawsAndSubStreamsAreUncorrelated) {
  const CounterRng rng(5);
  double successive = 0, streams = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double u = rng.Uniform(i) - 0.5;
    successive += u * (rng.Uniform(i + 1) - 0.5);
    streams += u * (static_cast<double>(rng.Bits64(i) >> 11) * 0x1p-53 - 0.5);
  }
  // a product of two centred uniform draws has a standard deviation of 1/12
  const double limit = 5 * std::sqrt(kDraws) / 12;
  EXPECT_LT(std::abs(successive), limit);
  EXPECT_LT(std::abs(streams), limit);
}

}  // namespace
}  // namespace samara
