// Separable natural evolution strategies (Schaul, Glasmachers, Schmidhuber 2011; Wierstra et al.
// 2014, arXiv 1106.4487): the natural gradient of mean and deviations.
#include <algorithm>
#include <cmath>

#include "core/math.h"
#include "evo/algorithms/separable.h"
#include "evo/algorithms/shaping.h"

namespace samara {
namespace {

class SnesConfig : public SeparableConfig {
 public:
  double sigma = 0.1;  // of the first population
  double mean_learning_rate = 1, sigma_learning_rate = 0;

  SnesConfig() : SeparableConfig({.population = 100}) {}
  std::unique_ptr<EvolutionConfig> Clone() const override {
    return std::make_unique<SnesConfig>(*this);
  }
  void Bind(ConfigTable& table) override {
    BindMembers(table);
    table.Add("snes.sigma", &sigma, {1e-12, 1e6}, "", "first standard deviation");
    table.Add("snes.mean_learning_rate", &mean_learning_rate, {0, 1000}, "",
              "learning rate of the mean");
    table.Add("snes.sigma_learning_rate", &sigma_learning_rate, {0, 1000}, "",
              "learning rate of the deviations; 0 = (3 + ln D) / (5 sqrt D) for D parameters");
    BindTest(table, "snes", budget);
    BindBudget(table, "snes", budget);
  }
  std::string table() const override { return "snes"; }
  std::unique_ptr<EvolutionAlgorithm> Make(const EvolutionSetup& setup) const override;
};

class Snes : public SeparableEvolution {
 public:
  Snes(const SnesConfig& c, const EvolutionSetup& setup)
      : SeparableEvolution(c, setup, c.sigma, 0), config_(c) {}

 private:
  // mean += rate sigma sum u s, sigma *= exp(rate / 2 sum u (s^2 - 1))
  nlohmann::json Move(std::span<const double> fitness, std::span<const uint64_t> keys,
                      SeparableState& next) const override {
    const std::vector<double> u = NesUtilities(fitness);
    const auto d = static_cast<double>(parameters());
    const double rate = config_.sigma_learning_rate > 0 ? config_.sigma_learning_rate
                                                        : (3 + Log(d)) / (5 * std::sqrt(d));
    ForMoments(
        keys, u, u,
        [&](size_t first, std::span<const double> of_mean, std::span<const double> of_sigma) {
          for (size_t k = 0; k < of_mean.size(); ++k) {
            const double sigma = next.deviation[first + k];
            next.mean[first + k] = static_cast<float>(
                next.mean[first + k] + config_.mean_learning_rate * sigma * of_mean[k]);
            next.deviation[first + k] = static_cast<float>(sigma * Exp(rate / 2 * of_sigma[k]));
          }
        });
    return nlohmann::json::object();
  }

  const SnesConfig config_;
};

std::unique_ptr<EvolutionAlgorithm> SnesConfig::Make(const EvolutionSetup& setup) const {
  return std::make_unique<Snes>(*this, setup);
}

}  // namespace

std::unique_ptr<EvolutionConfig> MakeSnesConfig() { return std::make_unique<SnesConfig>(); }

}  // namespace samara
