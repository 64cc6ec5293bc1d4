// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "evo/genome/population_hash.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace samara::population_hash_test {
namespace {

TEST(PopulationHashTest, IsSha256OfEncodingsFitnessBitsAndElite) {
  const std::vector<Genome> genomes = {{.initial = 1, .mutations = {{2, 0.5f}}},
                                       {.initial = 3, .mutations = {}}};
  const std::vector<double> fitness = {1.0, -2.5};
  // 1.0 = 3ff0000000000000, -2.5 = c004000000000000, little-endian
  const std::string bits("\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\x04\xc0", 16);
  EXPECT_EQ(Hex(PopulationHash(genomes, fitness, genomes[1])),
            Sha256Hex(genomes[0].Encode() + genomes[1].Encode() + bits + genomes[1].Encode()));
}

TEST(PopulationHashTest, OrderFitnessAndEliteMatter) {
  std::vector<Genome> genomes = {{.initial = 1, .mutations = {}}, {.initial = 2, .mutations = {}}};
  std::vector<double> fitness = {1, 2};
  const Digest hash = PopulationHash(genomes, fitness, genomes[0]);
  EXPECT_NE(PopulationHash(genomes, fitness, genomes[1]), hash);
  std::swap(fitness[0], fitness[1]);
  EXPECT_NE(PopulationHash(genomes, fitness, genomes[0]), hash);
  std::swap(genomes[0], genomes[1]);
  EXPECT_NE(PopulationHash(genomes, fitness, genomes[1]), hash);
}

}  // namespace
}  // namespace samara::population_hash_test
