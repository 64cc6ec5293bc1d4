#include "evo/algorithms/observation_statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/bytes.h"
#include "core/rng.h"
#include "nn/kernel.h"

namespace samara::observation_statistics_test {
namespace {

std::vector<float> Rows(uint64_t key, size_t rows) {
  std::vector<float> values;
  const CounterRng rng(key);
  for (size_t r = 0; r < rows; ++r)
    for (uint64_t i = 0; i < 3; ++i)
      values.push_back(static_cast<float>(10.0 * static_cast<double>(i) +
                                          (static_cast<double>(i) + 1) * rng.Normal(3 * r + i)));
  return values;
}

TEST(ObservationStatisticsTest, AgreeWithMeanAndDeviationOfAllRows) {
  ObservationStatistics statistics(3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(statistics.Mean(i), 0);
    EXPECT_EQ(statistics.Deviation(i), 1);
  }
  const std::vector<float> rows = Rows(5, 500);
  statistics.Add(std::span(rows).first(300)), statistics.Add(std::span(rows).subspan(300));
  for (size_t i = 0; i < 3; ++i) {
    double mean = 0, squares = 0;
    for (size_t r = 0; r < 500; ++r) mean += rows[3 * r + i] / 500;
    for (size_t r = 0; r < 500; ++r) squares += std::pow(rows[3 * r + i] - mean, 2) / 500;
    EXPECT_NEAR(statistics.Mean(i), mean, 1e-3);
    EXPECT_NEAR(statistics.Deviation(i), std::sqrt(squares), 1e-2);
  }
  EXPECT_EQ(statistics.seen(), 500U);
}

TEST(ObservationStatisticsTest, ThoseOfAPolicyWeighAThousandObservations) {
  const NetworkDescription network =
      MakeNetwork("normalize, dense 2 tanh", 1, 1, 3, 1).ValueOrThrow();
  ObservationStatistics seen(3);
  seen.Add(Rows(5, 500));
  std::vector<float> policy(network.parameter_count);
  WriteStatistics(seen, network, policy);
  ObservationStatistics again(network, policy);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(again.Mean(i), seen.Mean(i), 1e-5);
    EXPECT_NEAR(again.Deviation(i), seen.Deviation(i), 1e-4);
  }
  again.Add(std::vector<float>(3000, 100.0F));  // a thousand more
  EXPECT_NEAR(again.Mean(1), (seen.Mean(1) + 100) / 2, 1e-4);
}

TEST(ObservationStatisticsTest, SumsThatDoNotFitAreRefused) {
  const auto read = [](size_t sums, size_t squares, double count) {
    const std::string bytes = ByteWriter()
                                  .PutVector(std::vector<double>(sums))
                                  .PutVector(std::vector<double>(squares))
                                  .Put(count)
                                  .Put(uint64_t{7})
                                  .Take();
    ByteReader whole(bytes);
    ObservationStatistics statistics;
    for (size_t size = 0; size < bytes.size(); ++size) {
      ByteReader cut(std::string_view(bytes).substr(0, size));
      EXPECT_FALSE(statistics.Get(cut)) << size;
    }
    return statistics.Get(whole);
  };
  EXPECT_TRUE(read(3, 3, 1));
  EXPECT_TRUE(read(0, 0, 0));
  EXPECT_FALSE(read(3, 2, 1));
  for (const double count : {0.0, -1.0, std::nan("")}) EXPECT_FALSE(read(3, 3, count));
}

TEST(ObservationStatisticsTest, ConstantNumbersHaveTheLeastDeviation) {
  ObservationStatistics statistics(1);
  statistics.Add(std::vector<float>(1000, 7.0F));
  EXPECT_NEAR(statistics.Mean(0), 7, 1e-3);
  EXPECT_EQ(statistics.Deviation(0), 0.1);
  statistics.Add(std::vector<float>(10, std::numeric_limits<float>::quiet_NaN()));
  EXPECT_TRUE(std::isfinite(statistics.Mean(0)));
}

TEST(ObservationStatisticsTest, SumsOfPartsAreThoseOfTheWhole) {
  const std::vector<float> a = Rows(1, 20), b = Rows(2, 30);
  ObservationStatistics whole(3), sum(3), part(3);
  whole.Add(a), whole.Add(b);
  part.Add(b);
  sum.Add(a), sum.Add(part);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(sum.Mean(i), whole.Mean(i), 1e-12);
    EXPECT_NEAR(sum.Deviation(i), whole.Deviation(i), 1e-12);
  }
  ByteWriter out;
  whole.Put(out);
  const std::string bytes = out.Take();
  ObservationStatistics read;
  ByteReader in(bytes);
  ASSERT_TRUE(read.Get(in) && in.AtEnd());
  EXPECT_EQ(read.Mean(1), whole.Mean(1));
  EXPECT_EQ(read.seen(), 50U);
  for (size_t size = 0; size < bytes.size(); ++size) {
    ByteReader cut(std::string_view(bytes).substr(0, size));
    EXPECT_FALSE(read.Get(cut) && cut.AtEnd());
  }
}

EpisodeResult Recorded(const std::vector<float>& rows) {
  EpisodeResult result;
  const auto bytes = std::as_bytes(std::span(rows));
  result.recording.assign(bytes.begin(), bytes.end());
  return result;
}

TEST(ObservationStatisticsTest, AReducedRecordingAddsTheSameBits) {
  ObservationStatistics whole(3), reduced(3);
  for (uint64_t key = 1; key < 4; ++key) {
    EpisodeResult result = Recorded(Rows(key, 40 * key));
    ASSERT_TRUE(AddRecording(result, whole));
    ReduceRecording(3, result);
    const auto once = result.recording;
    EXPECT_LT(once.size(), 100U);
    ReduceRecording(3, result);
    EXPECT_EQ(result.recording, once);
    ASSERT_TRUE(AddRecording(result, reduced));
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(whole.Mean(i), reduced.Mean(i));
    EXPECT_EQ(whole.Deviation(i), reduced.Deviation(i));
  }
  EXPECT_EQ(whole.seen(), 240U);
  EXPECT_TRUE(AddRecording(EpisodeResult{}, whole));
  EpisodeResult damaged = Recorded(Rows(1, 10));
  ReduceRecording(3, damaged);
  damaged.recording.pop_back();
  EXPECT_FALSE(AddRecording(damaged, whole));
}

// The layer with written statistics computes (o - mean) / deviation.
TEST(ObservationStatisticsTest, TheLayerNormalizesWithThem) {
  const NetworkDescription network =
      MakeNetwork("normalize, dense 8 tanh", 1, 1, 3, 2).ValueOrThrow();
  const NetworkDescription plain = MakeNetwork("dense 8 tanh", 1, 1, 3, 2).ValueOrThrow();
  ASSERT_TRUE(Normalizes(network));
  EXPECT_FALSE(Normalizes(plain));
  std::vector<float> parameters(network.parameter_count);
  const CounterRng rng(9);
  for (size_t i = 0; i < network.evolved_count; ++i)
    parameters[i] = static_cast<float>(0.5 * rng.Normal(i));
  ObservationStatistics statistics(3);
  const std::vector<float> rows = Rows(7, 100);
  statistics.Add(rows);
  WriteStatistics(statistics, network, parameters);
  const auto outputs = [](const NetworkDescription& of, std::span<const float> theta,
                          std::span<const float> observation) {
    const PopulationKernel kernel(of);
    AlignedFloats packed(kernel.packed_size());
    kernel.Pack(theta, packed.span());
    std::vector<float> out(2);
    kernel.Forward(packed.data(), observation.data(), *kernel.MakeWorkspace(), out.data());
    return out;
  };
  for (size_t r = 0; r < 10; ++r) {
    const std::span<const float> row = std::span(rows).subspan(3 * r, 3);
    std::vector<float> normalized;
    for (size_t i = 0; i < 3; ++i)
      normalized.push_back(
          static_cast<float>((row[i] - statistics.Mean(i)) / statistics.Deviation(i)));
    const auto a = outputs(network, parameters, row);
    const auto b = outputs(plain, std::span(parameters).first(plain.parameter_count), normalized);
    for (size_t k = 0; k < 2; ++k) EXPECT_NEAR(a[k], b[k], 1e-5);
  }
}

}  // namespace
}  // namespace samara::observation_statistics_test
