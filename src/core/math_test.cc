// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "core/rng.h"

namespace samara {
namespace {

constexpr int kSamples = 200'000;

// Distance in units in the last place of the double nearest `exact`.
double Ulps(double value, long double exact) {
  const double rounded = std::abs(static_cast<double>(exact));
  const long double ulp = std::nextafter(rounded, HUGE_VAL) - rounded;
  return static_cast<double>(std::abs(value - exact) / ulp);
}

// The largest error of sine and cosine over uniform draws of [-limit, limit], against the 80-bit
// functions of libm.
double WorstUlps(double limit) {
  const CounterRng rng(7);
  double worst = 0;
  for (int i = 0; i < kSamples; ++i) {
    const double x = (2 * rng.Uniform(i) - 1) * limit;
    worst = std::max(worst, Ulps(Sin(x), std::sin(static_cast<long double>(x))));
    worst = std::max(worst, Ulps(Cos(x), std::cos(static_cast<long double>(x))));
  }
  return worst;
}

TEST(MathTest, SineAndCosineAreWithinOneUlp) {
  for (const double limit : {0.1, 0.7853981633974483, 7.0, 100.0, 1048576.0})
    EXPECT_LT(WorstUlps(limit), 1.0) << "|x| <= " << limit;
}

TEST(MathTest, SineIsAccurateNextToMultiplesOfPi) {
  // where the reduction cancels most: the doubles around n * pi
  for (int n = 1; n < 100'000; ++n) {
    const double x = n * 3.141592653589793;
    ASSERT_LT(Ulps(Sin(x), std::sin(static_cast<long double>(x))), 1.0) << x;
  }
}

TEST(MathTest, KnownValuesAndEdges) {
  EXPECT_EQ(Sin(0.0), 0.0);
  EXPECT_TRUE(std::signbit(Sin(-0.0)));
  EXPECT_EQ(Cos(0.0), 1.0);
  EXPECT_EQ(Sin(1.0), 0.8414709848078965);
  EXPECT_EQ(Cos(1.0), 0.5403023058681398);
  EXPECT_EQ(Sin(3.141592653589793), 1.2246467991473532e-16);
  EXPECT_LE(std::abs(Sin(1e300)), 1.0);
  EXPECT_TRUE(std::isnan(Sin(HUGE_VAL)));
  EXPECT_TRUE(std::isnan(Cos(std::numeric_limits<double>::quiet_NaN())));
}

TEST(MathTest, LogarithmIsWithinTwoUlps) {
  const CounterRng rng(8);
  double worst = 0;
  for (int i = 0; i < kSamples; ++i) {
    // every exponent, and many values next to 1
    const double wide = std::ldexp(0.5 + 0.5 * rng.Uniform(i), static_cast<int>(i % 2000) - 1000);
    const double near = 1 + (rng.Uniform(i) - 0.5) * std::ldexp(1.0, -(i % 40));
    for (const double x : {wide, near, rng.Uniform(i) + 0x1p-60})
      worst = std::max(worst, x == 1 ? 0 : Ulps(Log(x), std::log(static_cast<long double>(x))));
  }
  EXPECT_LT(worst, 2.0);
  EXPECT_EQ(Log(1.0), 0.0);
  EXPECT_EQ(Log(0.0), -HUGE_VAL);
  EXPECT_TRUE(std::isnan(Log(-1.0)));
}

TEST(MathTest, ExponentialIsWithinOneUlp) {
  const CounterRng rng(10);
  double worst = 0;
  for (int i = 0; i < kSamples; ++i) {
    const double u = 2 * rng.Uniform(i) - 1;
    for (const double x : {708 * u, u, std::ldexp(u, -(i % 60))})
      worst = std::max(worst, Ulps(Exp(x), std::exp(static_cast<long double>(x))));
  }
  EXPECT_LT(worst, 1.0);
}

TEST(MathTest, ExponentialsKnownValuesAndEdges) {
  EXPECT_EQ(Exp(0.0), 1.0);
  EXPECT_EQ(Exp(-1.0), 0.36787944117144233);
  EXPECT_DOUBLE_EQ(Exp(1.0), 2.718281828459045);
  EXPECT_LT(Ulps(Exp(709.782712893384), std::exp(static_cast<long double>(709.782712893384))), 1);
  EXPECT_EQ(Exp(709.7827128933841), HUGE_VAL);
  EXPECT_EQ(Exp(-745.1332191019411), 0x1p-1074);
  for (const double x : {-746.0, -1e300, -HUGE_VAL}) EXPECT_EQ(Exp(x), 0.0);
  for (const double x : {711.0, 1e300, HUGE_VAL}) EXPECT_EQ(Exp(x), HUGE_VAL);
  EXPECT_TRUE(std::isnan(Exp(std::numeric_limits<double>::quiet_NaN())));
}

// The same bits on every machine: values are compared as bit patterns, so a compiler that contracts
// or reorders is caught.
TEST(MathTest, BitsAreFixed) {
  const CounterRng rng(9);
  uint64_t digest = 0;
  for (int i = 0; i < 10'000; ++i) {
    const double x = 200 * rng.Uniform(i) - 100;
    for (const double y : {Sin(x), Cos(x), Log(rng.Uniform(i) + 1e-3), Exp(x)})
      digest = digest * 0x9E3779B97F4A7C15u + std::bit_cast<uint64_t>(y);
  }
  EXPECT_EQ(digest, 10998219406441193870u);
}

}  // namespace
}  // namespace samara
