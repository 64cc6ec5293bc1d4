// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "evo/genome/genome_set.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/bytes.h"
#include "evo/genome/noise.h"

namespace samara::genome_set_test {
namespace {

std::vector<Genome> Family() {
  std::vector<Genome> family(4);
  for (size_t i = 0; i < family.size(); ++i) {
    family[i].initial = i == 3 ? 8 : 7;
    for (uint64_t m = 0; m < 100; ++m) family[i].mutations.push_back({.key = m, .power = 0.5F});
    family[i].mutations.push_back({.key = 200 + i, .power = 0.25F});
  }
  family[1].mutations.back() = {.key = 5,
                                .power = 2,
                                .kind = MutationKind::kSmR,
                                .clip = 0.2F,
                                .episode = 11,
                                .experience = 12};
  family[2].mutations.clear();
  return family;
}

TEST(GenomeSet, DecodesWhatItEncodes) {
  for (const auto& genomes : {std::vector<Genome>(), std::vector<Genome>(2), Family()})
    EXPECT_EQ(DecodeGenomes(EncodeGenomes(genomes)).ValueOrThrow(), genomes);
}

TEST(GenomeSet, DecodesEveryKindOfInitialWeights) {
  for (const auto& [kind, name] : kInitNames) {
    const std::vector<Genome> genomes = {{.init = kind, .initial = 7, .mutations = {}}};
    EXPECT_EQ(DecodeGenomes(EncodeGenomes(genomes)).ValueOrThrow(), genomes) << name;
  }
}

TEST(GenomeSet, NamesSharedAncestorsOnce) {
  // two lines of 101 ancestors, and what the second genome and the safe mutation add
  EXPECT_LT(EncodeGenomes(Family()).size(), 205 * 17 + 100u);
}

TEST(GenomeSet, RefusesDamage) {
  const std::string bytes = EncodeGenomes(Family());
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_EQ(DecodeGenomes(std::string_view(bytes).substr(0, n)).status().code(), Code::kBadData);
  EXPECT_FALSE(DecodeGenomes(bytes + "x").ok());
  for (const size_t at : {0, 1, 2, 3, 7, 23}) {
    std::string other = bytes;
    other[at] = static_cast<char>(0x7F);
    const auto decoded = DecodeGenomes(other);
    EXPECT_TRUE(!decoded.ok() || *decoded != Family()) << at;
  }
}

// A set of one ancestor and one genome, whole but for what a case spoils.
struct SavedSet {
  uint8_t version = 1, noise = 1, init = 1;
  uint32_t parent = UINT32_MAX;
  float power = 0, clip = 0;
  uint8_t kind = 0;
  uint32_t genomes = 1, end = 0;

  std::string Encode() const {
    ByteWriter out;
    out.Put(version).Put(noise).Put(init).Put(uint32_t{1}).Put(parent).Put(uint64_t{7}).Put(power);
    out.Put(kind);
    if (kind != 0) out.Put(clip).Put(uint64_t{1}).Put(uint64_t{2});
    return out.Put(genomes).Put(end).Take();
  }
};

TEST(GenomeSet, PartsThatDoNotFitAreRefused) {
  const float inf = std::numeric_limits<float>::infinity();
  const SavedSet refused[] = {
      {.version = 0}, {.version = 2},
      {.noise = 0},   {.noise = 4},
      {.init = 0},    {.init = 8},
      {.parent = 0},  {.parent = UINT32_MAX - 1},
      {.power = inf}, {.clip = inf, .kind = 1},
      {.kind = 6},    {.genomes = 10'000'001},
      {.genomes = 0}, {.genomes = 2},
      {.end = 1},
  };
  EXPECT_EQ(DecodeGenomes(SavedSet().Encode())->at(0).initial, 7U);
  for (const SavedSet& set : refused) {
    const Status status = DecodeGenomes(set.Encode()).status();
    EXPECT_EQ(status.code(), Code::kBadData) << &set - refused;
    EXPECT_EQ(status.message(), "a recorded population is damaged") << &set - refused;
  }
}

}  // namespace
}  // namespace samara::genome_set_test
