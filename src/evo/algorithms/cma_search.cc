#include "evo/algorithms/cma_search.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/math.h"
#include "evo/algorithms/ascent.h"
#include "evo/algorithms/shaping.h"

namespace samara {
namespace {

// Begin of row i in a lower triangle.
constexpr size_t Row(size_t i) { return i * (i + 1) / 2; }

}  // namespace

// ---- constants

CmaConstants::CmaConstants(size_t lambda, size_t parameters, bool separable) : weights(lambda) {
  const auto n = static_cast<double>(parameters);
  double sum = 0, squares = 0;
  for (size_t p = 0; p < lambda / 2; ++p) {
    weights[p] = Log((static_cast<double>(lambda) + 1) / 2) - Log(static_cast<double>(p + 1));
    sum += weights[p];
  }
  for (double& w : weights) w /= sum, squares += w * w;
  mu_eff = 1 / squares;
  c_sigma = (mu_eff + 2) / (n + mu_eff + 5);
  d_sigma = 1 + 2 * std::max(0.0, std::sqrt((mu_eff - 1) / (n + 1)) - 1) + c_sigma;
  c_c = std::min(1.0, (4 + mu_eff / n) / (n + 4 + 2 * mu_eff / n));
  const double factor = separable ? (n + 2) / 3 : 1;
  c_1 = std::min(1.0, factor * 2 / ((n + 1.3) * (n + 1.3) + mu_eff));
  c_mu = std::min(1 - c_1, factor * 2 * (mu_eff - 2 + 1 / mu_eff) / ((n + 2) * (n + 2) + mu_eff));
  chi_n = std::sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n));
}

bool HSigma(const CmaConstants& c, size_t n, double path_length, uint64_t generation) {
  double decay = 1;
  for (uint64_t g = 0; g < 2 * std::min<uint64_t>(generation, 10'000); ++g) decay *= 1 - c.c_sigma;
  return path_length / std::sqrt(1 - decay) < (1.4 + 2 / (static_cast<double>(n) + 1)) * c.chi_n;
}

bool CholeskyInPlace(std::vector<double>& a, size_t n) {
  for (size_t j = 0; j < n; ++j) {
    double* const row_j = a.data() + Row(j);
    double diagonal = row_j[j];
    for (size_t k = 0; k < j; ++k) diagonal -= row_j[k] * row_j[k];
    if (!(diagonal > 0)) return false;
    row_j[j] = std::sqrt(diagonal);
    for (size_t i = j + 1; i < n; ++i) {
      double* const row_i = a.data() + Row(i);
      double sum = row_i[j];
      for (size_t k = 0; k < j; ++k) sum -= row_i[k] * row_j[k];
      row_i[j] = sum / row_j[j];
    }
  }
  return true;
}

// ---- distribution

CmaDistribution::CmaDistribution(std::vector<float> around, size_t n, double step)
    : mean(std::move(around)), covariance(Row(n)), path_sigma(n), path_c(n), sigma(step) {
  for (size_t i = 0; i < n; ++i) covariance[Row(i) + i] = 1;
}

void CmaDistribution::Put(ByteWriter& out) const {
  out.PutVector(mean);
  out.PutVector(covariance).PutVector(path_sigma).PutVector(path_c).Put(sigma);
}

bool CmaDistribution::Get(ByteReader& in) {
  if (!in.GetVector(mean)) return false;
  for (auto* values : {&covariance, &path_sigma, &path_c})
    if (!in.GetVector(*values)) return false;
  sigma = in.Get<double>();
  return in.ok();
}

bool CmaDistribution::Fits(size_t parameters, size_t n) const {
  return mean.size() == parameters && covariance.size() == Row(n) && path_sigma.size() == n &&
         path_c.size() == n;
}

double CmaDistribution::WidestVariance() const {
  double widest = 0;
  for (size_t i = 0; i < path_c.size(); ++i) widest = std::max(widest, covariance[Row(i) + i]);
  return widest;
}

// ---- search

void CmaSearch::Write(uint64_t key, std::span<float> canonical) const {
  std::vector<float> z(n_);
  noise_.Fill(key, 0, z);
  std::ranges::copy(distribution_.mean, canonical.begin());
  for (size_t i = 0; i < n_; ++i)
    canonical[i] = static_cast<float>(canonical[i] + distribution_.sigma * Times(z, i));
}

double CmaSearch::Times(std::span<const float> z, size_t i) const {
  double sum = 0;
  for (size_t j = 0; j <= i; ++j) sum += factor_[Row(i) + j] * z[j];
  return sum;
}

// A from the covariance; what rounding has made indefinite gets a larger diagonal.
Status CmaSearch::Take(CmaDistribution distribution) {
  const std::vector<double>& covariance = distribution.covariance;
  const double diagonal = distribution.WidestVariance();
  double more = 0;
  for (int trial = 0; trial < 20; ++trial, more = std::max(1e-14 * diagonal, 10 * more)) {
    std::vector<double> factor = covariance;
    for (size_t i = 0; i < n_; ++i) factor[Row(i) + i] += more;
    if (!CholeskyInPlace(factor, n_)) continue;
    distribution_ = std::move(distribution), factor_ = std::move(factor);
    return Status::Ok();
  }
  return {Code::kBadData, "the covariance is not positive definite"};
}

CmaDistribution CmaSearch::Moved(std::span<const double> fitness, std::span<const uint64_t> keys,
                                 uint64_t generation) const {
  const CmaConstants& c = constants_;
  CmaDistribution next = distribution_;
  const std::vector<double> w = ByPlace(fitness, c.weights);
  // 1 steps y = A z of the members that count, and their weighted means
  std::vector<double> mean_z(n_), mean_y(n_), y(n_);
  std::vector<double> spread(Row(n_));  // sum w y y^T
  std::vector<float> z(n_);
  for (size_t k = 0; k < keys.size(); ++k) {
    if (w[k] == 0) continue;
    noise_.Fill(keys[k], 0, z);
    for (size_t i = 0; i < n_; ++i) {
      y[i] = Times(z, i);
      mean_z[i] += w[k] * z[i], mean_y[i] += w[k] * y[i];
    }
    for (size_t i = 0; i < n_; ++i)
      for (size_t j = 0; j <= i; ++j) spread[Row(i) + j] += w[k] * y[i] * y[j];
  }
  // 2 the mean, and the path of the step size
  double length = 0;
  for (size_t i = 0; i < n_; ++i) {
    next.mean[i] = static_cast<float>(next.mean[i] + next.sigma * mean_y[i]);
    next.path_sigma[i] = (1 - c.c_sigma) * next.path_sigma[i] +
                         std::sqrt(c.c_sigma * (2 - c.c_sigma) * c.mu_eff) * mean_z[i];
    length += next.path_sigma[i] * next.path_sigma[i];
  }
  length = std::sqrt(length);
  // 3 the covariance and its path
  const bool h_sigma = HSigma(c, n_, length, generation);
  const double path = h_sigma ? std::sqrt(c.c_c * (2 - c.c_c) * c.mu_eff) : 0;
  for (size_t i = 0; i < n_; ++i) next.path_c[i] = (1 - c.c_c) * next.path_c[i] + path * mean_y[i];
  const double kept = 1 - c.c_1 - c.c_mu + (h_sigma ? 0 : c.c_1 * c.c_c * (2 - c.c_c));
  for (size_t i = 0; i < n_; ++i)
    for (size_t j = 0; j <= i; ++j)
      next.covariance[Row(i) + j] = kept * next.covariance[Row(i) + j] +
                                    c.c_1 * next.path_c[i] * next.path_c[j] +
                                    c.c_mu * spread[Row(i) + j];
  // 4 the step size
  next.sigma *= Exp(std::min(1.0, c.c_sigma / c.d_sigma * (length / c.chi_n - 1)));
  return next;
}

}  // namespace samara
