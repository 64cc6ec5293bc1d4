// SPDX-License-Identifier: Apache-2.0 OR MIT
// Instruction sets against each other and slices against whole groups. What the values are is
// checked against NumPy in tests/test_noise.py.
#include "evo/genome/noise.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <thread>

#include "evo/genome/noise_quantiles.h"
#include "evo/genome/noise_table.h"

namespace samara::noise_test {
namespace {

std::vector<uint32_t> Bits(std::span<const float> values) {
  std::vector<uint32_t> bits;
  for (float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

std::vector<float> Filled(const Noise& noise, uint64_t key, size_t first, size_t n) {
  std::vector<float> out(n);
  noise.Fill(key, first, out);
  return out;
}

class CounterNoiseTest : public testing::TestWithParam<NoiseKind> {};

TEST_P(CounterNoiseTest, EveryInstructionSetGivesTheSameBits) {
  const auto portable = TEST_MakeNoise(GetParam(), IsaLevel::kPortable);
  for (IsaLevel isa : AvailableIsaLevels()) {
    const auto noise = TEST_MakeNoise(GetParam(), isa);
    for (uint64_t key : {uint64_t{0}, uint64_t{0x0123456789abcdef}, ~uint64_t{0}}) {
      for (size_t first : {size_t{0}, size_t{37}, size_t{1} << 40}) {
        EXPECT_EQ(Bits(Filled(*noise, key, first, 70'001)),
                  Bits(Filled(*portable, key, first, 70'001)))
            << Name(isa) << ' ' << key << ' ' << first;
        std::vector<float> ours(5000, 0.25f), theirs(5000, 0.25f);
        noise->Add(key, 0.002f, first, ours, ours);
        portable->Add(key, 0.002f, first, theirs, theirs);
        EXPECT_EQ(Bits(ours), Bits(theirs)) << Name(isa) << ' ' << key << ' ' << first;
      }
    }
  }
}

TEST_P(CounterNoiseTest, AddRoundsTheProductThenTheSum) {
  const Noise& noise = GetNoise(GetParam());
  const std::vector<float> e = Filled(noise, 9, 100, 2000);
  std::vector<float> theta(2000), expected(2000);
  for (size_t i = 0; i < theta.size(); ++i) {
    theta[i] = 0.001f * static_cast<float>(i);
    volatile float product = 0.0123f * e[i];  // volatile: no fused or wider arithmetic
    expected[i] = theta[i] + product;
  }
  std::vector<float> sum(2000);
  noise.Add(9, 0.0123f, 100, theta, sum);
  EXPECT_EQ(Bits(sum), Bits(expected));
  noise.Add(9, 0.0123f, 100, theta, theta);  // in place
  EXPECT_EQ(Bits(theta), Bits(expected));
}

TEST_P(CounterNoiseTest, TouchesNothingOutsideTheSpan) {
  const Noise& noise = GetNoise(GetParam());
  for (size_t n : {size_t{0}, size_t{1}, size_t{255}, size_t{256}, size_t{513}}) {
    std::vector<float> room(n + 2, 7.0f);
    noise.Fill(3, 11, std::span(room).subspan(1, n));
    const std::span inner = std::span(room).subspan(1, n);
    noise.Add(3, 1.0f, 11, inner, inner);
    EXPECT_EQ(room.front(), 7.0f);
    EXPECT_EQ(room.back(), 7.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, CounterNoiseTest,
                         testing::Values(NoiseKind::kNormal, NoiseKind::kQuantile8));

TEST(NoiseTest, QuantileTableIsTheInverseOfTheNormalDistribution) {
  // q = round(32 z) means that q - 1/2 < 32 z < q + 1/2 for the z with Phi(z) = p
  for (int b = 128; b < 256; ++b) {
    const double p = (b + 0.5) / 256, q = kQuantileHalf[b - 128];
    const auto phi = [](double z) { return std::erfc(-z / std::sqrt(2.0)) / 2; };
    EXPECT_LT(phi((q - 0.5) / 32), p) << b;
    EXPECT_GT(phi((q + 0.5) / 32), p) << b;
  }
}

TEST(NoiseTest, TheTableIsNumpysWhateverThreadComesFirst) {
  // NumPy: RandomState(123).randn(4).astype(float32)
  const std::vector<float> expected = {-1.0856306f, 0.99734545f, 0.2829785f, -1.5062947f};
  std::vector<std::vector<float>> seen(3);
  std::vector<std::thread> threads;
  for (auto& out : seen) {
    threads.emplace_back([&out] { out = Filled(GetNoise(NoiseKind::kTable), 0, 0, 4); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& values : seen) EXPECT_EQ(Bits(values), Bits(expected));
  std::vector<float> theta(2, 1.0f);
  GetNoise(NoiseKind::kTable).Add(1, 0.5f, 1, theta, theta);
  EXPECT_EQ(theta[0], 1.0f + 0.5f * expected[2]);
  EXPECT_EQ(theta[1], 1.0f + 0.5f * expected[3]);
}

TEST(NoiseTest, SlicesOfTheTableAreDrawnWithoutTheTable) {
  std::vector<float> begin(1 << 20);
  LegacyNormals(123).Draw(begin);
  // across the places where the generator's state is remembered (each 2^18 values), odd and even
  const std::pair<size_t, size_t> slices[] = {{0, 1},       {1, 1},         {262'143, 2},
                                              {262'144, 3}, {5, 600'001},   {900'001, 100'000},
                                              {262'145, 1}, {1'048'575, 1}, {7, 0}};
  for (const auto& [first, n] : slices) {
    const auto expected = std::span(begin).subspan(first, n);
    EXPECT_EQ(Bits(Filled(GetNoise(NoiseKind::kTable), 0, first, n)), Bits(expected)) << first;
    EXPECT_EQ(Bits(Filled(GetNoise(NoiseKind::kTable), first, 0, n)), Bits(expected)) << first;
  }
  EXPECT_FALSE(NoiseTableIsHeld());
}

TEST(NoiseDeathTest, SliceBeyondTheTableIsABug) {
  std::vector<float> out(10);
  EXPECT_DEATH(GetNoise(NoiseKind::kTable).Fill(kNoiseTableSize - 9, 0, out), "leaves the noise");
}

}  // namespace
}  // namespace samara::noise_test
