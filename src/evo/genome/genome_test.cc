// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "evo/genome/genome.h"

#include <gtest/gtest.h>

#include <limits>

namespace samara::genome_test {
namespace {

Genome Long(size_t mutations) {
  Genome genome{.noise = NoiseKind::kQuantile8,
                .init = InitKind::kUnitNorm,
                .initial = ~0ull,
                .mutations = {}};
  for (size_t i = 0; i < mutations; ++i) {
    genome.mutations.push_back({i * 0x9E3779B97F4A7C15, 0.002f * static_cast<float>(i)});
  }
  return genome;
}

TEST(GenomeTest, EncodingIsWhatTheHeaderSays) {
  const Genome genome{.noise = NoiseKind::kTable,
                      .init = InitKind::kFanIn,
                      .initial = 0x0807060504030201,
                      .mutations = {{0x1817161514131211, 1.0f}}};
  // 1.0f is 0x3f800000
  const std::string expected(
      "\x01\x03\x01\x00"
      "\x01\x00\x00\x00"
      "\x01\x02\x03\x04\x05\x06\x07\x08"
      "\x11\x12\x13\x14\x15\x16\x17\x18"
      "\x00\x00\x80\x3f",
      28);
  EXPECT_EQ(genome.Encode(), expected);
}

TEST(GenomeTest, ReferenceEliteTakesLessThanFourKilobytes) {
  EXPECT_EQ(Long(265).Encode().size(), 3196u);
}

TEST(GenomeTest, DecodesWhatItEncodes) {
  for (size_t n : {0, 1, 265, 5000}) {
    const Result<Genome> decoded = Genome::Decode(Long(n).Encode());
    ASSERT_TRUE(decoded.ok()) << decoded.status().message();
    EXPECT_EQ(*decoded, Long(n));
  }
}

void ExpectBad(const std::string& bytes, const std::string& what) {
  const Result<Genome> decoded = Genome::Decode(bytes);
  ASSERT_FALSE(decoded.ok()) << what;
  EXPECT_EQ(decoded.status().code(), Code::kBadData);
  EXPECT_NE(decoded.status().message().find(what), std::string::npos) << decoded.status().message();
  EXPECT_EQ(decoded.status().message().find('\n'), std::string::npos);
}

TEST(GenomeTest, EveryTruncationAndTrailingBytesAreRefused) {
  const std::string bytes = Long(7).Encode();
  for (size_t n = 0; n < bytes.size(); ++n) ExpectBad(bytes.substr(0, n), "bytes");
  ExpectBad(bytes + '\0', "header says 100");
  ExpectBad(bytes + bytes, "header says 100");
}

TEST(GenomeTest, RefusesWhatItDoesNotKnow) {
  const auto with = [](size_t at, char byte) {
    std::string bytes = Long(2).Encode();
    bytes[at] = byte;
    return bytes;
  };
  ExpectBad(with(0, 3), "version 3");
  ExpectBad(with(0, 2), "header says");
  ExpectBad(with(1, 0), "noise kind 0");
  ExpectBad(with(1, 4), "noise kind 4");
  ExpectBad(with(2, 0), "init kind 0");
  ExpectBad(with(2, 8), "init kind 8, expected 1-7");
  ExpectBad(with(3, 1), "byte 3");
  ExpectBad(with(7, '\xff'), "header says");  // a huge count must not be believed
  for (float power :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Genome genome = Long(2);
    genome.mutations[1].power = power;
    ExpectBad(genome.Encode(), "mutation 1 has no finite power");
  }
}

TEST(GenomeTest, AGenomeThatBeginsFromAPolicyNeedsIt) {
  const InitialPolicy policy = MakeInitialPolicy({1, 2, 3}, std::nullopt);
  Genome genome{.init = InitKind::kPolicy, .initial = policy.key, .mutations = {{5, 1}}};
  EXPECT_TRUE(CheckKeys(genome, 3, &policy).ok());
  const auto refused = [&](const Genome& other, size_t parameters, const InitialPolicy* given) {
    const Status status = CheckKeys(other, parameters, given);
    EXPECT_EQ(status.message(),
              "genome: begins from a policy that is stored in its run's folder only");
    return status.code() == Code::kBadData;
  };
  EXPECT_TRUE(refused(genome, 3, nullptr));
  EXPECT_TRUE(refused(genome, 4, &policy));
  Genome other = genome;
  ++other.initial;
  EXPECT_TRUE(refused(other, 3, &policy));
  // its first index is no index of the table, those of its mutations are
  genome.noise = NoiseKind::kTable;
  EXPECT_TRUE(CheckKeys(genome, 3, &policy).ok());
  genome.mutations[0].key = 250'000'000;
  EXPECT_EQ(CheckKeys(genome, 3, &policy).code(), Code::kBadData);
}

TEST(GenomeTest, APrefixHasTheSameBits) {
  const Genome genome = Long(3);
  EXPECT_TRUE(IsPrefix(genome, genome));
  std::vector<Genome> others(6, genome);
  others[0].noise = NoiseKind::kNormal;
  others[1].init = InitKind::kFanIn;
  others[2].initial ^= 1;
  others[3].mutations.push_back({1, 1});
  others[4].mutations[0].power = -0.0f;
  others[5].mutations[2].key ^= 1;
  for (const Genome& other : others) EXPECT_FALSE(IsPrefix(other, genome));
  Genome shorter = genome;
  shorter.mutations.pop_back();
  EXPECT_TRUE(IsPrefix(shorter, genome));
}

TEST(GenomeTest, EveryFieldChangesTheHash) {
  const auto hash = [](const Genome& genome) {
    Sha256 sha;
    UpdateHash(sha, genome);
    return Hex(sha.Finish());
  };
  const Genome genome = Long(3);
  EXPECT_EQ(hash(genome), Sha256Hex(genome.Encode()));
  std::vector<Genome> others(6, genome);
  others[0].noise = NoiseKind::kNormal;
  others[1].init = InitKind::kFanIn;
  others[2].initial ^= 1;
  others[3].mutations[2].key ^= 1;
  others[4].mutations[0].power = -0.0f;  // equal as a number, another genome as bits
  others[5].mutations.pop_back();
  for (const Genome& other : others) EXPECT_NE(hash(other), hash(genome));
}

TEST(GenomeTest, TableIndicesMustLeaveRoomForTheParameters) {
  Genome genome{.noise = NoiseKind::kTable,
                .init = InitKind::kFanIn,
                .initial = 249'999'000,
                .mutations = {{0, 1}}};
  EXPECT_TRUE(CheckKeys(genome, 1000).ok());
  EXPECT_EQ(CheckKeys(genome, 1001).code(), Code::kBadData);
  genome.initial = 0;
  genome.mutations.push_back({249'999'001, 1});
  const Status status = CheckKeys(genome, 1000);
  EXPECT_NE(status.message().find("mutation 1 is 249999001"), std::string::npos)
      << status.message();
  EXPECT_FALSE(CheckKeys(genome, 250'000'001).ok());
  genome.noise = NoiseKind::kNormal;
  EXPECT_TRUE(CheckKeys(genome, 1000).ok());
}

Genome Safe() {
  Genome genome = Long(2);
  genome.mutations.push_back({.key = 0x1817161514131211,
                              .power = 1.0f,
                              .kind = MutationKind::kSmGAbs,
                              .clip = 0.25f,
                              .episode = 0x2827262524232221,
                              .experience = 0x3837363534333231});
  return genome;
}

TEST(GenomeTest, SafeMutationsHaveAVersionOfTheirOwn) {
  EXPECT_TRUE(Long(2).plain());
  EXPECT_FALSE(Safe().plain());
  const std::string bytes = Safe().Encode();
  EXPECT_EQ(bytes.substr(0, 1), "\x02");
  EXPECT_EQ(bytes.substr(16 + 2 * 36), std::string("\x11\x12\x13\x14\x15\x16\x17\x18"
                                                   "\x21\x22\x23\x24\x25\x26\x27\x28"
                                                   "\x31\x32\x33\x34\x35\x36\x37\x38"
                                                   "\x00\x00\x80\x3f"
                                                   "\x00\x00\x80\x3e"
                                                   "\x04\x00\x00\x00",
                                                   36));
  EXPECT_EQ(Genome::Decode(bytes).ValueOrThrow(), Safe());
  for (size_t n = 0; n < bytes.size(); ++n) ExpectBad(bytes.substr(0, n), "bytes");
}

TEST(GenomeTest, RefusesMutationsOfAnUnknownKind) {
  Genome endless = Safe();
  endless.mutations.back().clip = std::numeric_limits<float>::infinity();
  ExpectBad(endless.Encode(), "mutation 2 has no finite power");
  std::string bytes = Safe().Encode();
  bytes[bytes.size() - 4] = 6;
  ExpectBad(bytes, "of kind 6");
  bytes[bytes.size() - 4] = 0;
  ExpectBad(bytes, "without a safe mutation");
}

}  // namespace
}  // namespace samara::genome_test
