// The distribution of CMA-ES (Hansen, arXiv 1604.00772) and how it moves, with the Cholesky factor
// of the covariance instead of its symmetric root (Suttorp, Hansen, Igel 2009). One such
// distribution is CMA-ES (cma.cc); several that look for improvements of an archive are CMA-MAE
// (cma_mae.cc).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/bytes.h"
#include "core/status.h"
#include "evo/genome/noise.h"

namespace samara {

// Recombination weights and rates for `lambda` members of n parameters. `separable`: the rates of a
// diagonal covariance are (n + 2) / 3 times those of a full one. Every rate is at most 1, and so is
// c_1 + c_mu.
struct CmaConstants {
  CmaConstants(size_t lambda, size_t n, bool separable);
  std::vector<double> weights;  // by place, the best first; the worse half has 0
  double mu_eff = 0, c_sigma = 0, d_sigma = 0, c_c = 0, c_1 = 0, c_mu = 0;
  double chi_n = 0;  // expected length of a standard normal vector
};
// h_sigma (Hansen 2016, arXiv 1604.00772, section 4): false while the path of the step size, of
// this length, is long, which stalls that of the covariance.
bool HSigma(const CmaConstants& constants, size_t n, double path_length, uint64_t generation);

// The lower triangle of a symmetric matrix, row by row; its Cholesky factor in place. False: it is
// not positive definite.
bool CholeskyInPlace(std::vector<double>& triangle, size_t n);

constexpr size_t kCmaParametersMax = 2000;  // a record holds half the square of them, 16 MB

struct CmaDistribution {
  std::vector<float> mean;         // a policy's parameters, of which the first n move
  std::vector<double> covariance;  // lower triangle
  std::vector<double> path_sigma, path_c;
  double sigma = 0;

  // The identity around `mean`.
  CmaDistribution() = default;
  CmaDistribution(std::vector<float> mean, size_t n, double sigma);
  void Put(ByteWriter& out) const;
  bool Get(ByteReader& in);  // false: damaged. Check Fits too
  bool Fits(size_t parameters, size_t n) const;
  double WidestVariance() const;  // of a parameter, at step size 1
};

// Members that a distribution draws, and the distribution that follows. Thread safety: Take from
// one thread while nothing else runs.
class CmaSearch {
 public:
  CmaSearch(size_t members, size_t n, const Noise& noise)
      : n_(n), constants_(members, n, /*separable=*/false), noise_(noise) {}
  const CmaDistribution& distribution() const { return distribution_; }
  // kBadData: its covariance is not positive definite.
  Status Take(CmaDistribution distribution);
  // The member whose normal noise has this key: mean + sigma A z.
  void Write(uint64_t key, std::span<float> canonical) const;
  // After members with these keys had such fitness, in the `generation` of the search.
  CmaDistribution Moved(std::span<const double> fitness, std::span<const uint64_t> keys,
                        uint64_t generation) const;

 private:
  double Times(std::span<const float> z, size_t i) const;  // element i of A z

  const size_t n_;
  const CmaConstants constants_;
  const Noise& noise_;
  CmaDistribution distribution_;
  std::vector<double> factor_;  // A, of its covariance
};

}  // namespace samara
