// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "evo/genome/genome_set.h"

#include <gtest/gtest.h>

namespace samara {
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

}  // namespace
}  // namespace samara
