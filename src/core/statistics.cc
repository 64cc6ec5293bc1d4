// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/rng.h"

namespace samara {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<double> Sorted(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

std::vector<double> WithoutNan(std::span<const double> values) {
  std::vector<double> kept;
  kept.reserve(values.size());
  for (double v : values)
    if (!std::isnan(v)) kept.push_back(v);
  return kept;
}

}  // namespace

double Mean(std::span<const double> values) {
  if (values.empty()) return kNan;
  double sum = 0;
  for (double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

double Std(std::span<const double> values) {
  if (values.empty()) return kNan;
  const double mean = Mean(values);
  double sum = 0;
  for (double v : values) sum += (v - mean) * (v - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

double Quantile(std::span<const double> values, double q) {
  CHECK(q >= 0 && q <= 1) << q;
  if (values.empty()) return kNan;
  const std::vector<double> sorted = Sorted(values);
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double weight = position - static_cast<double>(below);
  // equal neighbours are returned as they are: infinities must not become NaN
  if (weight == 0 || sorted[below] == sorted[above]) return sorted[below];
  return sorted[below] + weight * (sorted[above] - sorted[below]);
}

double Median(std::span<const double> values) {
  if (values.empty()) return kNan;
  std::vector<double> copy(values.begin(), values.end());
  const auto middle = copy.begin() + static_cast<std::ptrdiff_t>(copy.size() / 2);
  std::nth_element(copy.begin(), middle, copy.end());
  if (copy.size() % 2 == 1) return *middle;
  return (*std::max_element(copy.begin(), middle) + *middle) / 2;
}

std::pair<double, double> RangeOf(std::span<const double> values) {
  std::pair range{kNan, kNan};
  for (const double value : values) {
    range.first = std::fmin(range.first, value);  // fmin and fmax leave NaN out
    range.second = std::fmax(range.second, value);
  }
  return range;
}

double InterquartileMean(std::span<const double> values) {
  const std::vector<double> sorted = Sorted(values);
  const size_t cut = sorted.size() / 4;
  return Mean(std::span(sorted).subspan(cut, sorted.size() - 2 * cut));
}

Interval BootstrapInterval(std::span<const double> values, const Statistic& statistic,
                           const BootstrapOptions& options) {
  const std::vector<double> one(values.begin(), values.end());
  return StratifiedBootstrapInterval(std::span(&one, 1), statistic, options);
}

Interval StratifiedBootstrapInterval(std::span<const std::vector<double>> strata,
                                     const Statistic& statistic, const BootstrapOptions& options) {
  CHECK(options.resamples > 0 && options.confidence > 0 && options.confidence < 1);
  std::vector<std::vector<double>> kept;
  size_t total = 0;
  for (const auto& stratum : strata) {
    kept.push_back(WithoutNan(stratum));
    total += kept.back().size();
  }
  if (total == 0) return {kNan, kNan};

  // 1. resample within each stratum; one stream of draws per resample
  std::vector<double> sample(total), estimates(static_cast<size_t>(options.resamples));
  for (size_t r = 0; r < estimates.size(); ++r) {
    const CounterRng rng(DeriveKey(options.seed, Purpose::kBootstrap, r));
    size_t n = 0;
    for (const auto& stratum : kept)
      for (size_t i = 0; i < stratum.size(); ++i, ++n)
        sample[n] = stratum[rng.UniformInt(n, stratum.size())];
    estimates[r] = statistic(sample);
  }
  // 2. percentiles of the estimates
  std::sort(estimates.begin(), estimates.end());
  const double tail = (1 - options.confidence) / 2;
  return {Quantile(estimates, tail), Quantile(estimates, 1 - tail)};
}

}  // namespace samara
