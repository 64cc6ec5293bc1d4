// CMA-ES (Hansen, arXiv 1604.00772) with the Cholesky factor of the covariance instead of its
// symmetric root (Suttorp, Hansen, Igel 2009).
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "evo/algorithms/algorithm.h"

namespace samara {

// Recombination weights and rates for `lambda` members of n parameters. `separable`: the rates of a
// diagonal covariance are (n + 2) / 3 times those of a full one. Every rate is at most 1, and so is
// c_1 + c_mu.
struct CmaConstants {
  CmaConstants(size_t lambda, size_t n, bool separable);
  std::vector<double> weights;  // by place, the best first; the worse half has 0
  double mu_eff = 0, c_sigma = 0, d_sigma = 0, c_c = 0, c_1 = 0, c_mu = 0;
  double chi = 0;  // expected length of a standard normal vector
};
// Whether the path of the covariance goes on: it stalls while that of the step size is long.
bool CmaPathGoes(const CmaConstants& constants, size_t n, double path_length, uint64_t generation);

// The lower triangle of a symmetric matrix, row by row; its Cholesky factor in place. False: it is
// not positive definite.
bool CholeskyInPlace(std::vector<double>& triangle, size_t n);

// The row of the registry.
std::unique_ptr<EvolutionConfig> MakeCmaConfig();
Result<EvolutionSummary> DescribeCma(std::string_view state);

}  // namespace samara
