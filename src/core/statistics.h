// SPDX-License-Identifier: Apache-2.0 OR MIT
// Summary statistics of returns and their bootstrap confidence intervals.
//
// Thread safety: pure functions. Sums run in the given order, the resampling is keyed by
// core/rng.h, so the same values and seed give the same bits everywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace samara {

// Each returns NaN for an empty span.
double Mean(std::span<const double> values);
double Std(std::span<const double> values);     // of the population (divides by n, as NumPy)
double Median(std::span<const double> values);  // mean of the two middle ones when n is even
// Linear interpolation between order statistics (NumPy's default). REQUIRES: 0 <= q <= 1.
double Quantile(std::span<const double> values, double q);
// Interquartile mean: floor(n / 4) values are cut from each end and the rest averaged (scipy's
// trim_mean(x, 0.25), as in Agarwal et al., "Deep reinforcement learning at the edge of the
// statistical precipice", 2021).
double InterquartileMean(std::span<const double> values);

// The least and the greatest of the values that are numbers; NaN when none is.
std::pair<double, double> RangeOf(std::span<const double> values);

struct Interval {
  double low, high;  // NaN when there was nothing to resample
};

struct BootstrapOptions {
  int resamples = 10'000;
  double confidence = 0.95;
  uint64_t seed = 0;
};

using Statistic = std::function<double(std::span<const double>)>;

// Percentile bootstrap: the (1 -+ confidence) / 2 quantiles of `statistic` over resamples drawn
// with replacement. NaN values are left out.
Interval BootstrapInterval(std::span<const double> values, const Statistic& statistic,
                           const BootstrapOptions& options = {});
// The same over several strata (runs, or games): each is resampled within itself, then `statistic`
// sees all of them joined, in order.
Interval StratifiedBootstrapInterval(std::span<const std::vector<double>> strata,
                                     const Statistic& statistic,
                                     const BootstrapOptions& options = {});

}  // namespace samara
