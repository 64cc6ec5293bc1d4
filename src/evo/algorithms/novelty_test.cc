// Distances and neighbours against the formula written down naively.
#include "evo/algorithms/novelty.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/bytes.h"
#include "core/rng.h"

namespace samara::novelty_test {
namespace {

constexpr double kEnough = std::numeric_limits<double>::infinity();
constexpr auto kRam = BehaviourKind::kRam;
constexpr auto kPosition = BehaviourKind::kFinalPosition;

Behaviour Memory(uint64_t key, size_t rows, size_t row) {
  Behaviour b(rows * row);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<std::byte>(CounterRng(key).Bits(i));
  return b;
}

Behaviour Position(std::vector<float> values) {
  Behaviour b(values.size() * sizeof(float));
  std::memcpy(b.data(), values.data(), b.size());
  return b;
}

// sum over t < m of |x_t - y_t|^2, then of |x_t - y_(m-1)|^2, where y has m rows and x no fewer.
int64_t Naive(const Behaviour& a, const Behaviour& b, int64_t row) {
  const Behaviour &x = a.size() < b.size() ? b : a, &y = a.size() < b.size() ? a : b;
  const auto m = static_cast<int64_t>(y.size()) / row;
  int64_t sum = 0;
  for (int64_t t = 0; t < static_cast<int64_t>(x.size()) / row; ++t)
    for (int64_t i = 0; i < row; ++i) {
      const auto value = [&](const Behaviour& of, int64_t s) {
        return static_cast<int64_t>(of[static_cast<size_t>(s * row + i)]);
      };
      const int64_t d = value(x, t) - value(y, t < m ? t : m - 1);
      sum += d * d;
    }
  return sum;
}

TEST(NoveltyTest, MemoryDistanceIsTheExactSumAndTheShorterHoldsItsLastRow) {
  for (const size_t row : {1, 16, 128, 131})
    for (const size_t m : {1, 2, 33, 100})
      for (const size_t n : {1, 31, 32, 200}) {
        const Behaviour a = Memory(1, m, row), b = Memory(2, n, row);
        const auto expected = static_cast<double>(Naive(a, b, static_cast<int64_t>(row)));
        EXPECT_EQ(SquaredDistance(kRam, row, a, b, kEnough), expected);
        EXPECT_EQ(SquaredDistance(kRam, row, b, a, kEnough), expected);
        EXPECT_GE(SquaredDistance(kRam, row, a, b, expected / 3), expected / 3);
      }
  // the largest there can be: no sum overflows
  const Behaviour zeros(128 * 30'000), full(128 * 30'000, std::byte{255});
  EXPECT_EQ(SquaredDistance(kRam, 128, zeros, full, kEnough), 255.0 * 255 * 128 * 30'000);
  const Behaviour low(65'536), high(65'536, std::byte{255});
  EXPECT_EQ(SquaredDistance(kRam, 65'536, low, high, kEnough), 255.0 * 255 * 65'536);
}

TEST(NoveltyTest, PositionsAreComparedByEuclid) {
  EXPECT_EQ(SquaredDistance(kPosition, 8, Position({1, 2}), Position({4, 6}), kEnough), 25);
  const auto trajectory = BehaviourKind::kTrajectory;
  const Behaviour longer = Position({0, 0, 3, 0, 3, 4}), shorter = Position({0, 0, 0, 0});
  EXPECT_EQ(SquaredDistance(trajectory, 8, longer, shorter, kEnough), 9 + 25);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(
      std::isnan(SquaredDistance(kPosition, 8, Position({nan, 0}), Position({0, 0}), kEnough)));
}

TEST(NoveltyTest, TheNearestAreThoseOfASortedList) {
  for (const size_t k : {1, 3, 10, 25, 100})
    for (const size_t n : {0, 1, 9, 24, 60}) {
      std::vector<double> all;
      NearestDistances nearest(k);
      for (size_t i = 0; i < n; ++i) {
        // few values, so that ties are common
        all.push_back(static_cast<double>(CounterRng(k * 1000 + n).UniformInt(i, 7)));
        nearest.Offer(all.back());
        nearest.Offer(std::numeric_limits<double>::quiet_NaN());
      }
      std::sort(all.begin(), all.end());
      all.resize(std::min(all.size(), k));
      double squares = 0, roots = 0;
      for (const double d : all) squares += d, roots += std::sqrt(d);
      const double count = all.empty() ? 1 : static_cast<double>(all.size());
      EXPECT_EQ(nearest.MeanSquared(), squares / count);
      EXPECT_EQ(nearest.Mean(), roots / count);
    }
}

TEST(NoveltyTest, TheArchiveFindsWhatBruteForceFinds) {
  NoveltyArchive archive(kRam, 16);
  std::vector<Behaviour> entries;
  const Behaviour asked = Memory(99, 40, 16);
  EXPECT_EQ(archive.MeanDistance(asked, 10), 0);
  for (uint64_t i = 0; i < 30; ++i) {
    entries.push_back(Memory(i, 20 + i % 50, 16));
    archive.Add(entries.back());
    std::vector<double> distances;
    for (const Behaviour& entry : entries)
      distances.push_back(std::sqrt(static_cast<double>(Naive(entry, asked, 16))));
    std::sort(distances.begin(), distances.end());
    distances.resize(std::min<size_t>(distances.size(), 10));
    double sum = 0;
    for (const double d : distances) sum += d;
    EXPECT_EQ(archive.MeanDistance(asked, 10), sum / static_cast<double>(distances.size()));
  }
}

TEST(NoveltyTest, AnArchiveIsRestoredFromWhatWasAddedBitByBit) {
  NoveltyArchive archive(kPosition, 8), copy(kPosition, 8);
  std::vector<Digest> digests = {archive.digest()};
  for (int i = 0; i < 7; ++i) {
    archive.Add(Position({static_cast<float>(i), -1}));
    digests.push_back(archive.digest());
    if (i % 3 != 0) continue;
    ASSERT_TRUE(copy.Append(archive.Encode(copy.size())).ok());
    EXPECT_EQ(copy.digest(), archive.digest());
    EXPECT_EQ(copy.size(), archive.size());
    EXPECT_EQ(copy.Encode(0), archive.Encode(0));
  }
  std::sort(digests.begin(), digests.end());
  EXPECT_EQ(std::unique(digests.begin(), digests.end()), digests.end());
  EXPECT_TRUE(copy.Append("").ok());
  const std::string bytes = archive.Encode(0);
  for (size_t size = 1; size < bytes.size(); ++size) {
    NoveltyArchive cut(kPosition, 8);
    EXPECT_EQ(cut.Append(std::string_view(bytes).substr(0, size)).ok(), size % 16 == 0) << size;
  }
  NoveltyArchive of_three(kPosition, 12);
  EXPECT_EQ(of_three.Append(bytes).code(), Code::kBadData);
}

TEST(NoveltyTest, BehavioursOfNoWholeRowsAreRefused) {
  const auto append = [](size_t row, const std::string& bytes) {
    NoveltyArchive archive(kPosition, row);
    return archive.Append(bytes).message();
  };
  const std::string damaged = "the recorded archive of behaviours is damaged";
  const std::string eight = ByteWriter().PutBytes("12345678").Take();
  EXPECT_EQ(append(8, eight + eight), "");
  EXPECT_EQ(append(8, ""), "");
  EXPECT_EQ(append(12, eight), damaged);
  EXPECT_EQ(append(0, eight), damaged);
  EXPECT_EQ(append(8, ByteWriter().PutBytes("").Take()), damaged);
  EXPECT_EQ(append(8, eight + "x"), damaged);
}

TEST(NoveltyTest, WhatAnEnvironmentLacksIsRefusedByName) {
  EnvironmentSpec with, without;
  with.id = "maze", without.id = "pole";
  with.position = 2, with.memory = 128;
  NoveltyRule rule;
  EXPECT_EQ(rule.Records(with).ValueOrThrow(), RecordKind::kNothing);
  EXPECT_EQ(rule.RowBytes(with), 8U);
  for (const auto kind : {kPosition, BehaviourKind::kTrajectory, kRam}) {
    rule.kind = kind;
    const Status status = rule.Records(without).status();
    EXPECT_EQ(status.code(), Code::kConfig);
    EXPECT_NE(status.message().find("pole"), std::string::npos);
  }
  EXPECT_EQ(rule.Records(with).ValueOrThrow(), RecordKind::kMemory);
  EXPECT_EQ(rule.RowBytes(with), 128U);
}

TEST(NoveltyTest, SeveralEpisodesCountByTheMeanOfTheirFinalPositions) {
  EpisodeResult a, b;
  a.position = {1, 5}, b.position = {2, -5};
  a.recording = {std::byte{7}};
  const EpisodeResult both[] = {a, b};
  NoveltyRule rule;
  EXPECT_EQ(rule.BehaviourOf(both), Position({1.5F, 0}));
  rule.kind = kRam;
  EXPECT_EQ(rule.BehaviourOf(both), a.recording);
}

}  // namespace
}  // namespace samara::novelty_test
