// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/math.h"

#include <cmath>
#include <limits>

namespace samara {
namespace {

constexpr double kTwoPi = 6.283185307179586;
constexpr double kUnreduced = 0.785;   // below pi/4: n is 0, and the rest leaves x as it is
constexpr double kReducible = 0x1p20;  // |x| up to which three parts of pi/2 are enough

// pi/2 = kPart1 + kPart2 + kPart3 + O(2^-120). The first two have 32 significant bits, so that
// their products with a multiple below 2^21 are exact (Cody and Waite 1980).
constexpr double kPart1 = 0x1.921fb544p+0;
constexpr double kPart2 = 0x1.0b4611a6p-34;
constexpr double kPart3 = 0x1.3198a2e037073p-69;

// x = quadrant * pi/2 + hi + lo with |hi + lo| just above pi/4 at most.
struct Reduced {
  int quadrant;  // modulo 4
  double hi, lo;
};

Reduced Reduce(double x) {
  if (std::abs(x) <= kUnreduced) return {0, x, 0};
  if (std::abs(x) > kReducible) x = std::fmod(x, kTwoPi);
  const double n = std::floor(x * (2 / 3.141592653589793) + 0.5);
  // exact: n * kPart1 is, and x is close to it
  const double a = x - n * kPart1;
  // a - b as an unevaluated sum (Knuth's two-sum, no assumption on magnitudes)
  const double b = n * kPart2;
  const double hi = a - b;
  const double b_seen = a - hi;
  const double error = (a - (hi + b_seen)) + (b_seen - b);
  const double rest = error - n * kPart3;
  const double sum = hi + rest;
  return {static_cast<int>(static_cast<long long>(n) & 3), sum, rest - (sum - hi)};
}

// Taylor polynomials: at pi/4 the first omitted terms are below 2^-60 of the result.
double SinKernel(double x, double lo) {
  const double z = x * x;
  double p = 1.0 / 355687428096000.0;  // 1/17!
  p = p * z - 1.0 / 1307674368000.0;
  p = p * z + 1.0 / 6227020800.0;
  p = p * z - 1.0 / 39916800.0;
  p = p * z + 1.0 / 362880.0;
  p = p * z - 1.0 / 5040.0;
  p = p * z + 1.0 / 120.0;
  p = p * z - 1.0 / 6.0;
  return x + (x * z * p + lo * (1 - 0.5 * z));
}

double CosKernel(double x, double lo) {
  const double z = x * x;
  double p = 1.0 / 20922789888000.0;  // 1/16!
  p = p * z - 1.0 / 87178291200.0;
  p = p * z + 1.0 / 479001600.0;
  p = p * z - 1.0 / 3628800.0;
  p = p * z + 1.0 / 40320.0;
  p = p * z - 1.0 / 720.0;
  p = p * z + 1.0 / 24.0;
  // 1 - z/2 with its rounding error put back
  const double half = 0.5 * z, w = 1 - half;
  return w + (((1 - w) - half) + (z * z * p - x * lo));
}

// sin(x + shift * pi/2)
double Wave(double x, int shift) {
  if (!std::isfinite(x)) return std::numeric_limits<double>::quiet_NaN();
  const Reduced r = Reduce(x);
  const int quadrant = (r.quadrant + shift) & 3;
  const double value = (quadrant & 1) ? CosKernel(r.hi, r.lo) : SinKernel(r.hi, r.lo);
  return (quadrant & 2) ? -value : value;
}

// ln 2 in two parts, the first with 32 bits so that its product with an exponent is exact
constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;

}  // namespace

double Sin(double x) { return x == 0 ? x : Wave(x, 0); }
double Cos(double x) { return Wave(x, 1); }

double Log(double x) {
  if (x == 0) return -std::numeric_limits<double>::infinity();
  if (!std::isnormal(x) || x < 0) return std::numeric_limits<double>::quiet_NaN();
  // x = m * 2^e with m in [sqrt(1/2), sqrt(2))
  int e = 0;
  double m = std::frexp(x, &e);
  if (m < 0.7071067811865476) {
    m *= 2;
    --e;
  }
  // log m = 2 atanh(s), |s| <= 0.172: the omitted term s^23/23 is below 2^-62
  const double s = (m - 1) / (m + 1), z = s * s;
  double p = 1.0 / 21;
  for (int k = 19; k >= 3; k -= 2) p = p * z + 1.0 / k;
  return e * kLn2High + (2 * s + (2 * s * z * p + e * kLn2Low));
}

double Exp(double x) {
  if (std::isnan(x)) return x;
  if (x > 710) return std::numeric_limits<double>::infinity();
  if (x < -746) return 0;
  // x = n ln 2 + r + rest with |r| just above ln 2 / 2 at most; x - n kLn2High is exact
  const double n = std::floor(x * 1.4426950408889634 + 0.5);
  const double high = x - n * kLn2High, low = n * kLn2Low;
  const double r = high - low, rest = (high - r) - low;
  // Taylor polynomial of (e^r - 1 - r) / r^2: the omitted term r^15/15! is below 2^-62
  double p = 1.0 / 87178291200.0;  // 1/14!
  p = p * r + 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  return std::ldexp(1 + (r + (r * r * p + rest)), static_cast<int>(n));
}

}  // namespace samara
