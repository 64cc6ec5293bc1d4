// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "evo/genome/decode.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <thread>

#include "core/rng.h"
#include "evo/genome/noise.h"
#include "evo/genome/noise_table.h"
#include "nn/kernel.h"

namespace samara::decode_test {
namespace {

NetworkDescription SmallNetwork() { return MakeNetwork("Model", 84, 84, 4, 6).ValueOrThrow(); }
NetworkDescription TinyNetwork() { return MakeNetwork("mlp-8-8-tanh", 1, 1, 5, 3).ValueOrThrow(); }

std::vector<uint32_t> Bits(std::span<const float> values) {
  std::vector<uint32_t> bits;
  for (float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

std::vector<float> Built(const Genome& genome, const NetworkDescription& network) {
  std::vector<float> out(network.parameter_count);
  DecodeParameters(genome, network, out);
  return out;
}
std::vector<float> Built(const Genome& genome, AncestorCache& cache) {
  std::vector<float> out(cache.network().parameter_count);
  cache.DecodeParameters(genome, out);
  return out;
}

Genome Line(uint64_t seed, size_t mutations, NoiseKind noise = NoiseKind::kNormal) {
  Genome genome{.noise = noise, .init = InitKind::kFanIn, .initial = seed, .mutations = {}};
  for (size_t i = 0; i < mutations; ++i) {
    genome.mutations.push_back({DeriveKey(seed, Purpose::kMutation, i), 0.002f});
  }
  return genome;
}

Genome Child(Genome parent, uint64_t key) {
  parent.mutations.push_back({key, 0.002f});
  return parent;
}

TEST(DecodeParametersTest, FanInScalesEachLayerAndClearsBiases) {
  const NetworkDescription network = SmallNetwork();
  const Genome genome = Line(3, 0);
  std::vector<float> e(network.parameter_count);
  GetNoise(NoiseKind::kNormal).Fill(3, 0, e);
  const std::vector<float> theta = Built(genome, network);
  // fan-ins of Model: 8*8*4, 4*4*16, 11*11*32, 256
  struct {
    size_t weights, biases;
    double fan_in, c;
  } layers[] = {
      {4096, 16, 256, 1}, {8192, 32, 256, 1}, {991232, 256, 3872, 1}, {1536, 6, 256, 0.1}};
  size_t at = 0;
  for (const auto& layer : layers) {
    const auto scale = static_cast<float>(layer.c / std::sqrt(layer.fan_in));
    for (size_t i = 0; i < layer.weights; ++i, ++at) ASSERT_EQ(theta[at], e[at] * scale) << at;
    for (size_t i = 0; i < layer.biases; ++i, ++at) {
      ASSERT_EQ(std::bit_cast<uint32_t>(theta[at]), 0u) << at;
    }
  }
  EXPECT_EQ(at, network.parameter_count);
}

TEST(DecodeParametersTest, UnitNormGivesEveryUnitItsNorm) {
  for (const NetworkDescription& network : {SmallNetwork(), TinyNetwork()}) {
    Genome genome = Line(4, 0);
    genome.init = InitKind::kUnitNorm;
    std::vector<float> e(network.parameter_count);
    GetNoise(NoiseKind::kNormal).Fill(4, 0, e);
    const std::vector<float> theta = Built(genome, network);
    for (const TensorSlice& tensor : Tensors(network)) {
      const auto units = static_cast<size_t>(tensor.shape.back());
      const double norm = tensor.output_layer ? 0.1 : 1.0;
      for (size_t unit = 0; unit < units; ++unit) {
        double squares = 0, along = 0, noise_squares = 0;
        for (size_t i = tensor.offset + unit; i < tensor.offset + tensor.count; i += units) {
          squares += double{theta[i]} * theta[i];
          along += double{theta[i]} * e[i];
          noise_squares += double{e[i]} * e[i];
        }
        if (tensor.bias) {
          EXPECT_EQ(squares, 0);
        } else {
          EXPECT_NEAR(std::sqrt(squares), norm, 1e-6 * norm) << tensor.name;
          EXPECT_NEAR(along, norm * std::sqrt(noise_squares), 1e-5 * along) << tensor.name;
        }
      }
    }
  }
}

// Standard deviations of Glorot and He, ranges of NEAT's weights, for both matrices of a recurrent
// layer.
TEST(DecodeParametersTest, InitialWeightsHaveTheScalesOfTheirKind) {
  const auto network = MakeNetwork("dense 100 tanh, lstm 60", 1, 1, 80, 40).ValueOrThrow();
  const auto count = [](double deviation) { return [=](double, double) { return deviation; }; };
  using Deviation = std::function<double(double fan_in, double fan_out)>;
  const std::pair<InitKind, Deviation> kinds[] = {
      {InitKind::kFanIn, [](double in, double) { return 1 / std::sqrt(in); }},
      {InitKind::kXavier, [](double in, double out) { return std::sqrt(2 / (in + out)); }},
      {InitKind::kHe, [](double in, double) { return std::sqrt(2 / in); }},
      {InitKind::kUniform, count(1 / std::sqrt(3.0))}};
  const std::map<std::string, std::pair<double, double>> fans = {{"fc1.weight", {80, 100}},
                                                                 {"lstm1.weight_ih", {100, 60}},
                                                                 {"lstm1.weight_hh", {60, 60}},
                                                                 {"out.weight", {60, 40}}};
  for (const auto& [kind, deviation] : kinds) {
    Genome genome = Line(8, 0);
    genome.init = kind;
    const std::vector<float> theta = Built(genome, network);
    for (const TensorSlice& tensor : Tensors(network)) {
      double squares = 0, largest = 0;
      for (size_t i = tensor.offset; i < tensor.offset + tensor.count; ++i) {
        squares += double{theta[i]} * theta[i];
        largest = std::max(largest, std::abs(double{theta[i]}));
      }
      if (tensor.bias) {
        EXPECT_EQ(squares, 0) << tensor.name;
        continue;
      }
      const auto [in, out] = fans.at(tensor.name);
      const double c = tensor.output_layer && kind == InitKind::kFanIn ? 0.1 : 1;
      const double want = c * deviation(in, out);
      // of n draws: a relative error of 1 / sqrt(2 n), of which five
      const auto n = static_cast<double>(tensor.count);
      EXPECT_NEAR(std::sqrt(squares / n), want, 5 * want / std::sqrt(2 * n))
          << tensor.name << ' ' << static_cast<int>(kind);
      if (kind == InitKind::kUniform) {
        EXPECT_LE(largest, 1);
        EXPECT_GT(largest, 0.95);
      }
    }
  }
}

TEST(DecodeParametersTest, MujocosOutputLayerHasUnitsOfNorm0p01) {
  Genome genome = Line(4, 0);
  genome.init = InitKind::kUnitNorm;
  const std::vector<float> large = Built(genome, TinyNetwork());
  genome.init = InitKind::kUnitNormSmall;
  const std::vector<float> small = Built(genome, TinyNetwork());
  for (const TensorSlice& tensor : Tensors(TinyNetwork())) {
    for (size_t i = tensor.offset; i < tensor.offset + tensor.count; ++i) {
      if (tensor.output_layer)
        EXPECT_NEAR(small[i], large[i] / 10, 1e-8) << i;
      else
        EXPECT_EQ(small[i], large[i]) << i;
    }
  }
}

// Two models of the original multiplied by the square root of the fan where they should divide, so
// that their outputs began a thousand times too large.
TEST(DecodeParametersTest, OutputsOfNewImageNetworksAreOfTheOrderOfOne) {
  const CounterRng pixels(5);
  for (const char* name : {"LargeModel", "Model", "Nature", "GAAtariPolicy", "impala_shallow"}) {
    const NetworkDescription network = MakeNetwork(name, 84, 84, 4, 18).ValueOrThrow();
    std::vector<float> image(network.input_size()), out(network.output_size());
    for (size_t i = 0; i < image.size(); ++i) image[i] = static_cast<float>(pixels.Uniform(i));
    const PopulationKernel kernel(network);
    AlignedFloats packed(kernel.packed_size());
    const auto workspace = kernel.MakeWorkspace();
    // kUniform is unscaled by definition
    for (const InitKind init :
         {InitKind::kFanIn, InitKind::kUnitNorm, InitKind::kXavier, InitKind::kHe}) {
      kernel.Pack(Built({.init = init, .initial = 11, .mutations = {}}, network), packed.span());
      kernel.Forward(packed.data(), image.data(), *workspace, out.data());
      double squares = 0;
      for (const float value : out) squares += static_cast<double>(value) * value;
      const double size = std::sqrt(squares / static_cast<double>(out.size()));
      EXPECT_GT(size, 0.001) << name << " init " << static_cast<int>(init);
      EXPECT_LT(size, 3) << name << " init " << static_cast<int>(init);
    }
  }
}

// Statistics are neither drawn nor mutated, and change no number of the noise.
TEST(DecodeParametersTest, StatisticsStayWhatTheyAre) {
  const auto plain = MakeNetwork("dense 8 tanh, dense 4 relu", 1, 1, 5, 3).ValueOrThrow();
  const auto normalized =
      MakeNetwork("normalize, dense 8 tanh, dense 4 vbn relu", 1, 1, 5, 3).ValueOrThrow();
  ASSERT_EQ(normalized.evolved_count, plain.parameter_count);
  ASSERT_EQ(normalized.parameter_count, plain.parameter_count + 2 * 5 + 2 * 4);
  AncestorCache cache(normalized, 1 << 20);
  for (const NoiseKind noise : {NoiseKind::kNormal, NoiseKind::kQuantile8}) {
    const Genome parent = Line(9, 2, noise), child = Child(parent, 77);
    const std::vector<float> want = Built(child, plain), theta = Built(child, normalized);
    EXPECT_EQ(Bits(std::span(theta).first(want.size())), Bits(want));
    std::vector<float> statistics(5, 0.0F);
    statistics.resize(10, 1.0F);
    statistics.resize(14, 0.0F);
    statistics.resize(18, 1.0F);
    EXPECT_EQ(std::vector<float>(theta.begin() + static_cast<ptrdiff_t>(want.size()), theta.end()),
              statistics);
    cache.Keep(parent);
    EXPECT_EQ(Bits(Built(child, cache)), Bits(theta));
  }
  const Genome affine = Line(9, 0);
  const auto scaled = MakeNetwork("dense 8 vbn_affine tanh", 1, 1, 5, 3).ValueOrThrow();
  const std::vector<float> theta = Built(affine, scaled);
  for (const TensorSlice& tensor : Tensors(scaled)) {
    if (tensor.name != "fc1_vbn.weight") continue;
    EXPECT_FALSE(tensor.statistic);
    for (size_t i = 0; i < tensor.count; ++i) EXPECT_EQ(theta[tensor.offset + i], 1);
  }
}

TEST(DecodeParametersTest, MutationsAreAddedLeftToRightUnscaled) {
  const NetworkDescription network = SmallNetwork();
  for (NoiseKind kind : {NoiseKind::kNormal, NoiseKind::kQuantile8}) {
    Genome genome = Line(5, 3, kind);
    genome.mutations[1].power = 0.5f;
    std::vector<float> expected = Built(Line(5, 0, kind), network), e(expected.size());
    for (const Mutation& mutation : genome.mutations) {
      GetNoise(kind).Fill(mutation.key, 0, e);
      for (size_t i = 0; i < e.size(); ++i) {
        volatile float product = mutation.power * e[i];
        expected[i] += product;
      }
    }
    EXPECT_EQ(Bits(Built(genome, network)), Bits(expected));
  }
}

// On several threads, without the table in memory.
TEST(DecodeParametersTest, TableNoiseIsAddedLikeTheOthers) {
  const auto network = MakeNetwork("mlp-800-800-tanh", 1, 1, 8, 4).ValueOrThrow();
  const Genome genome{.noise = NoiseKind::kTable,
                      .init = InitKind::kFanIn,
                      .initial = 3,
                      .mutations = {{100'001, 0.5f}, {0, 0.002f}, {262'143, 1.0f}}};
  std::vector<float> expected(network.parameter_count), e(network.parameter_count);
  InitialParameters(genome, network, expected);
  for (const Mutation& mutation : genome.mutations) {
    GetNoise(NoiseKind::kTable).Fill(mutation.key, 0, e);
    for (size_t i = 0; i < e.size(); ++i) {
      volatile float product = mutation.power * e[i];
      expected[i] += product;
    }
  }
  EXPECT_EQ(Bits(Built(genome, network)), Bits(expected));
  EXPECT_FALSE(NoiseTableIsHeld());
}

constexpr size_t kRoomForAll = size_t{1} << 30;

TEST(AncestorCacheTest, AChildOfAKeptParentCostsOneMutation) {
  const NetworkDescription network = SmallNetwork();
  AncestorCache cache(network, kRoomForAll);
  const Genome parent = Line(6, 40);
  cache.Keep(parent);
  EXPECT_EQ(cache.counters().mutations, 40u);
  for (uint64_t key = 0; key < 5; ++key) {
    EXPECT_EQ(Bits(Built(Child(parent, key), cache)), Bits(Built(Child(parent, key), network)));
  }
  EXPECT_EQ(cache.counters().mutations, 45u);
  EXPECT_EQ(cache.counters().hits, 5u);
  EXPECT_EQ(cache.counters().misses, 1u);
  // the parent itself is a copy; a relative with another power shares nothing
  EXPECT_EQ(Bits(Built(parent, cache)), Bits(Built(parent, network)));
  EXPECT_EQ(cache.counters().mutations, 45u);
  Genome relative = parent;
  relative.mutations.back().power = 0.003f;
  EXPECT_EQ(Bits(Built(relative, cache)), Bits(Built(relative, network)));
  EXPECT_EQ(cache.counters().misses, 2u);
}

TEST(AncestorCacheTest, NothingButTheWholePrefixCounts) {
  const NetworkDescription network = TinyNetwork();
  AncestorCache cache(network, kRoomForAll);
  const Genome parent = Line(7, 2);
  cache.Keep(parent);
  std::vector<Genome> others(5, Child(parent, 1));
  others[0].noise = NoiseKind::kQuantile8;
  others[1].init = InitKind::kUnitNorm;
  others[2].initial = 8;
  others[3].mutations[1].key ^= 1;
  others[4].mutations[0].power = -0.002f;
  for (const Genome& other : others) {
    EXPECT_EQ(Bits(Built(other, cache)), Bits(Built(other, network)));
  }
  EXPECT_EQ(cache.counters().hits, 0u);
}

TEST(AncestorCacheTest, AThousandGenerationsCostOneMutationEach) {
  const NetworkDescription network = TinyNetwork();
  // room for two genomes of 1,000 mutations
  AncestorCache cache(network, 2 * (4 * network.parameter_count + sizeof(Mutation) * 1000));
  Genome parent = Line(9, 0);
  std::vector<float> theta;
  for (uint64_t generation = 0; generation < 1000; ++generation) {
    cache.Keep(parent);
    for (uint64_t i = 0; i < 3; ++i) {
      theta = Built(Child(parent, DeriveKey(9, Purpose::kMutation, generation, i)), cache);
    }
    parent = Child(parent, DeriveKey(9, Purpose::kMutation, generation, 2));
  }
  // three children and, but for the first, the parent itself
  EXPECT_EQ(cache.counters().mutations, 3u * 1000 + 999);
  EXPECT_EQ(cache.counters().misses, 1u);
  EXPECT_LE(cache.counters().bytes, 2 * (4 * network.parameter_count + sizeof(Mutation) * 1000));
  EXPECT_EQ(Bits(theta), Bits(Built(parent, network)));
}

TEST(AncestorCacheTest, EvictsWhatWasUsedLeastRecently) {
  const NetworkDescription network = TinyNetwork();
  const size_t one = 4 * network.parameter_count + sizeof(Mutation) * 5;
  AncestorCache cache(network, 3 * one + one / 2);
  const auto is_held = [&](const Genome& genome) {
    const uint64_t before = cache.counters().hits;
    Built(genome, cache);
    return cache.counters().hits > before;
  };
  for (uint64_t seed : {1, 2, 3}) cache.Keep(Line(seed, 5));
  Built(Line(1, 5), cache);  // 2 is now the oldest
  cache.Keep(Line(4, 5));
  EXPECT_EQ(cache.counters().evictions, 1u);
  EXPECT_EQ(cache.counters().entries, 3u);
  EXPECT_EQ(cache.counters().bytes, 3 * one);
  EXPECT_FALSE(is_held(Line(2, 5)));
  for (uint64_t seed : {1, 3, 4}) EXPECT_TRUE(is_held(Line(seed, 5))) << seed;
}

TEST(AncestorCacheTest, HoldsNothingWithoutRoom) {
  const NetworkDescription network = TinyNetwork();
  for (size_t bytes_max : {size_t{0}, 4 * network.parameter_count - 1}) {
    AncestorCache cache(network, bytes_max);
    cache.Keep(Line(1, 0));
    EXPECT_EQ(cache.counters().entries, 0u);
    EXPECT_EQ(Bits(Built(Line(1, 3), cache)), Bits(Built(Line(1, 3), network)));
  }
}

TEST(AncestorCacheTest, ManyThreadsGetTheSameBits) {
  const NetworkDescription network = TinyNetwork();
  AncestorCache cache(network, 4 * (4 * network.parameter_count + 12 * 20));  // constant eviction
  std::vector<std::vector<uint32_t>> expected;
  for (uint64_t seed = 0; seed < 8; ++seed)
    expected.push_back(Bits(Built(Line(seed, 20), network)));
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 400; ++i) {
        const uint64_t seed = (i * 5 + t * 3) % 8;
        if (i % 3 == 0) cache.Keep(Line(seed, 10 + i % 11));
        if (Bits(Built(Line(seed, 20), cache)) != expected[seed]) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(cache.counters().evictions, 0u);
  EXPECT_GT(cache.counters().hits, 0u);
}

}  // namespace
}  // namespace samara::decode_test
