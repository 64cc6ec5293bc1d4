// The pass over the parameters against whole vectors in double precision, and the law of its
// quality.
#include "evo/algorithms/ascent.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/rng.h"
#include "evo/algorithms/shaping.h"

namespace samara::ascent_test {
namespace {

std::vector<uint64_t> Keys(uint64_t seed, size_t pairs) {
  std::vector<uint64_t> keys;
  for (size_t j = 0; j < pairs; ++j) keys.push_back(DeriveKey(seed, Purpose::kMutation, 1, j));
  return keys;
}

std::vector<double> Weights(uint64_t seed, size_t members) {
  std::vector<double> weights;
  const CounterRng rng(seed);
  for (size_t i = 0; i < members; ++i) weights.push_back(rng.Uniform(i) - 0.5);
  return weights;
}

// A step of plain SGD from zeros, which is the estimated gradient.
std::vector<float> Gradient(const Noise& noise, std::span<const uint64_t> keys,
                            std::span<const double> weights, double divisor, size_t parameters,
                            uint32_t threads) {
  Centre centre(std::vector<float>(parameters), AscentKind::kSgd);
  Ascend(noise, keys, weights, divisor, {.kind = AscentKind::kSgd}, 1, centre, threads);
  return centre.theta;
}

const Noise& Normal() { return GetNoise(NoiseKind::kNormal); }

TEST(AscentTest, TheGradientIsTheWeightedSumOfTheNoise) {
  constexpr size_t kParameters = 3 * kAscentBlock + 77, kPairs = 9;
  const auto keys = Keys(1, kPairs);
  const auto weights = Weights(2, 2 * kPairs);
  for (const NoiseKind kind : {NoiseKind::kNormal, NoiseKind::kQuantile8}) {
    const Noise& noise = GetNoise(kind);
    std::vector<double> expected(kParameters);
    std::vector<float> e(kParameters);
    for (size_t j = 0; j < kPairs; ++j) {
      noise.Fill(keys[j], 0, e);
      for (size_t i = 0; i < kParameters; ++i)
        expected[i] += (weights[2 * j] - weights[2 * j + 1]) * e[i] / 18;
    }
    const auto g = Gradient(noise, keys, weights, 18, kParameters, 3);
    for (size_t i = 0; i < kParameters; ++i) ASSERT_NEAR(g[i], expected[i], 1e-6) << i;
  }
}

// Adds one whole vector after the other, as the first version of the program did: its runs go on
// with the same bits.
TEST(AscentTest, TheBitsAreThoseOfWholeVectorsInOrderForAnyThreads) {
  constexpr size_t kParameters = 40 * kAscentBlock + 5, kPairs = 40;
  const auto keys = Keys(3, kPairs);
  const auto weights = Weights(4, 2 * kPairs);
  std::vector<float> whole(kParameters);
  for (size_t j = 0; j < kPairs; ++j)
    Normal().Add(keys[j], static_cast<float>((weights[2 * j] - weights[2 * j + 1]) / 80), 0, whole,
                 whole);
  for (const uint32_t threads : {1U, 2U, 7U})
    EXPECT_EQ(Gradient(Normal(), keys, weights, 80, kParameters, threads), whole);

  Centre one(whole, AscentKind::kAdam), many = one;
  const AscentRule rule{.kind = AscentKind::kAdam, .weight_decay = 0.005};
  for (int step = 0; step < 2; ++step) {
    const AscentReport a = Ascend(Normal(), keys, weights, 80, rule, 0.01, one, 1);
    const AscentReport b = Ascend(Normal(), keys, weights, 80, rule, 0.01, many, 5);
    EXPECT_EQ(a.step, b.step);
    EXPECT_EQ(a.gradient, b.gradient);
  }
  EXPECT_EQ(one.theta, many.theta);
  EXPECT_EQ(one.m, many.m);
  EXPECT_EQ(one.v, many.v);
}

// Each optimizer by its formula, on one parameter and a few steps.
struct Reference {
  double theta, m = 0, v = 0;
  void Step(AscentKind kind, double d, double rate, int t) {
    switch (kind) {
      case AscentKind::kAdam:
        m = 0.9 * m + 0.1 * d, v = 0.999 * v + 0.001 * d * d;
        theta -= rate * std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t)) * m /
                 (std::sqrt(v) + 1e-8);
        return;
      case AscentKind::kSgd:
        theta -= rate * d;
        return;
      case AscentKind::kSgdDamped:
        m = 0.9 * m + 0.1 * d;
        theta -= rate * m;
        return;
      case AscentKind::kSgdClassic:
        m = 0.9 * m + d;
        theta -= rate * m;
    }
  }
};

TEST(AscentTest, EveryOptimizerTakesItsStep) {
  constexpr double kRate = 0.03, kDecay = 0.02;
  const auto keys = Keys(5, 2);
  std::vector<float> e0(1), e1(1);
  Normal().Fill(keys[0], 0, e0), Normal().Fill(keys[1], 0, e1);
  for (const auto& [kind, name] : kAscentNames) {
    Centre centre({0.7F}, kind);
    Reference reference{.theta = 0.7F};
    for (int t = 1; t <= 5; ++t) {
      const auto weights = Weights(static_cast<uint64_t>(t), 4);
      const double g = ((weights[0] - weights[1]) * e0[0] + (weights[2] - weights[3]) * e1[0]) / 4;
      const double before = centre.theta[0];
      reference.Step(kind, kDecay * before - g, kRate, t);
      const AscentReport report =
          Ascend(Normal(), keys, weights, 4, {kind, 0.9, kDecay}, kRate, centre, 1);
      EXPECT_NEAR(centre.theta[0], reference.theta, 1e-6) << name << " step " << t;
      EXPECT_NEAR(report.step, std::abs(before - centre.theta[0]), 1e-6);
      EXPECT_NEAR(report.gradient, std::abs(g), 1e-7);
    }
    EXPECT_EQ(centre.steps, 5U);
  }
}

TEST(AscentTest, TheTwoSgdsWithMomentumDiffer) {
  Centre damped({1.0F}, AscentKind::kSgdDamped), classic({1.0F}, AscentKind::kSgdClassic);
  const auto keys = Keys(6, 1);
  const std::vector<double> weights = {0.5, -0.5};
  Ascend(Normal(), keys, weights, 2, {AscentKind::kSgdDamped, 0.9, 0}, 0.1, damped, 1);
  Ascend(Normal(), keys, weights, 2, {AscentKind::kSgdClassic, 0.9, 0}, 0.1, classic, 1);
  EXPECT_NEAR(classic.theta[0] - 1, 10 * (damped.theta[0] - 1), 1e-6);
}

TEST(AscentTest, ACentreIsReadBackAndDamageIsFound) {
  Centre centre({1.0F, 2.0F}, AscentKind::kSgdDamped);
  centre.steps = 7, centre.m = {3, 4};
  ByteWriter out;
  centre.Put(out);
  const std::string bytes = out.Take();
  Centre read;
  ByteReader in(bytes);
  ASSERT_TRUE(read.Get(in) && in.AtEnd());
  EXPECT_EQ(read.theta, centre.theta);
  EXPECT_EQ(read.m, centre.m);
  EXPECT_EQ(read.steps, 7U);
  EXPECT_TRUE(read.Fits(2, AscentKind::kSgdDamped));
  EXPECT_FALSE(read.Fits(2, AscentKind::kAdam));
  EXPECT_FALSE(read.Fits(3, AscentKind::kSgdDamped));
  for (size_t size = 0; size < bytes.size(); ++size) {
    ByteReader part(std::string_view(bytes).substr(0, size));
    EXPECT_FALSE(read.Get(part) && part.AtEnd());
  }
}

// On a linear objective the estimate from n pairs has the cosine sqrt(n / (n + P)) with the true
// gradient, and ranks cost a factor 3 / pi of n.
TEST(AscentTest, RankedPairsHaveTheCorrelationOfTheLaw) {
  constexpr size_t kParameters = 20'000;
  const std::vector<float> truth = [] {
    std::vector<float> t(kParameters);
    Normal().Fill(99, 0, t);
    return t;
  }();
  double length = 0;
  for (const float t : truth) length += double{t} * t;
  // each cosine has a standard deviation of 1 / sqrt(P) = 0.007
  struct Case {
    size_t pairs;
    int repeats;
  };
  for (const auto& [pairs, repeats] : {Case{200, 64}, Case{1000, 16}, Case{5000, 2}}) {
    double sum = 0;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      const auto keys = Keys(100 + static_cast<uint64_t>(repeat), pairs);
      std::vector<double> fitness;
      std::vector<float> e(kParameters);
      for (const uint64_t key : keys) {
        Normal().Fill(key, 0, e);
        double f = 0;
        for (size_t i = 0; i < kParameters; ++i) f += double{truth[i]} * e[i];
        fitness.push_back(f), fitness.push_back(-f);
      }
      const auto g = Gradient(Normal(), keys, CentredRanks(fitness), static_cast<double>(2 * pairs),
                              kParameters, 2);
      double product = 0, own = 0;
      for (size_t i = 0; i < kParameters; ++i)
        product += double{truth[i]} * g[i], own += double{g[i]} * g[i];
      sum += product / std::sqrt(own * length);
    }
    const auto n = static_cast<double>(pairs);
    const double law = std::sqrt(n / (n + kParameters * M_PI / 3));
    EXPECT_NEAR(sum / repeats, law, 0.03 * law) << pairs << " pairs";
  }
}

}  // namespace
}  // namespace samara::ascent_test
