// sep-CMA-ES (Ros, Hansen 2008): covariance matrix adaptation restricted to a diagonal, with the
// constants of Hansen's tutorial (arXiv 1604.00772) and the learning rates of the covariance times
// (D + 2) / 3.
#include <algorithm>
#include <cmath>

#include "core/math.h"
#include "evo/algorithms/cma_search.h"
#include "evo/algorithms/separable.h"
#include "evo/algorithms/shaping.h"

namespace samara {
namespace {

class SepCmaConfig : public SeparableConfig {
 public:
  double sigma = 0.1;  // of the first population

  SepCmaConfig() : SeparableConfig({.population = 32}) {}
  std::unique_ptr<EvolutionConfig> Clone() const override {
    return std::make_unique<SepCmaConfig>(*this);
  }
  void Bind(ConfigTable& table) override {
    BindMembers(table);
    table.Add("cma.sigma", &sigma, {1e-12, 1e6}, "", "first step size");
    BindTest(table, "cma", budget);
    BindBudget(table, "cma", budget);
  }
  std::string table() const override { return "cma"; }
  std::unique_ptr<EvolutionAlgorithm> Make(const EvolutionSetup& setup) const override;
};

class SepCma : public SeparableEvolution {
 public:
  // path1 is the path of the step size, path2 that of the covariance.
  SepCma(const SepCmaConfig& c, const EvolutionSetup& setup)
      : SeparableEvolution(c, setup, c.sigma, 2),
        constants_(static_cast<size_t>(c.members.population), setup.network.evolved_count, true) {}

 private:
  nlohmann::json Move(std::span<const double> fitness, std::span<const uint64_t> keys,
                      SeparableState& next) const override {
    const CmaConstants& c = constants_;
    const std::vector<double> w = ByPlace(fitness, c.weights);
    std::vector<double> step(parameters()), spread(parameters());  // sum w z, sum w (z^2 - 1)
    ForMoments(keys, w, w,
               [&](size_t first, std::span<const double> of_z, std::span<const double> of_squares) {
                 std::ranges::copy(of_z, step.begin() + static_cast<ptrdiff_t>(first));
                 std::ranges::copy(of_squares, spread.begin() + static_cast<ptrdiff_t>(first));
               });
    // 1 the mean, and the path of the step size
    double length = 0;
    for (size_t i = 0; i < step.size(); ++i) {
      next.mean[i] = static_cast<float>(next.mean[i] + next.scale * next.deviation[i] * step[i]);
      const double path = (1 - c.c_sigma) * next.path1[i] +
                          std::sqrt(c.c_sigma * (2 - c.c_sigma) * c.mu_eff) * step[i];
      next.path1[i] = static_cast<float>(path);
      length += path * path;
    }
    length = std::sqrt(length);
    // 2 the covariance: its path stalls while the step size grows quickly
    const bool h_sigma = HSigma(c, parameters(), length, next.generation);
    for (size_t i = 0; i < step.size(); ++i) {
      const double d = next.deviation[i], variance = d * d;
      const double path = (1 - c.c_c) * next.path2[i] +
                          (h_sigma ? std::sqrt(c.c_c * (2 - c.c_c) * c.mu_eff) * d * step[i] : 0);
      next.path2[i] = static_cast<float>(path);
      const double kept = 1 - c.c_1 - c.c_mu + (h_sigma ? 0 : c.c_1 * c.c_c * (2 - c.c_c));
      const double updated =
          kept * variance + c.c_1 * path * path + c.c_mu * variance * (spread[i] + 1);
      next.deviation[i] = static_cast<float>(std::sqrt(std::max(updated, 0.0)));
    }
    // 3 the step size
    next.scale *= Exp(std::min(1.0, c.c_sigma / c.d_sigma * (length / c.chi_n - 1)));
    return {{"step_size", next.scale}};
  }

  const CmaConstants constants_;
};

std::unique_ptr<EvolutionAlgorithm> SepCmaConfig::Make(const EvolutionSetup& setup) const {
  return std::make_unique<SepCma>(*this, setup);
}

}  // namespace

std::unique_ptr<EvolutionConfig> MakeSepCmaConfig() { return std::make_unique<SepCmaConfig>(); }

}  // namespace samara
