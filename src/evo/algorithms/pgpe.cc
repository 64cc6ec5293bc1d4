// PGPE with symmetric sampling (Sehnke et al. 2010) and the ClipUp optimizer (Toklu, Liskowski,
// Srivastava 2020, arXiv 2008.02387): policy gradients with parameter-based exploration.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "evo/algorithms/separable.h"
#include "evo/algorithms/shaping.h"

namespace samara {
namespace {

// Shapings of returns; the population sums no signs of rewards.
constexpr EnumName<Shaping> kPgpeShapings[] = {
    {Shaping::kCentredRank, "centered_rank"}, {Shaping::kNes, "nes"}, {Shaping::kZScore, "zscore"}};

class PgpeConfig : public SeparableConfig {
 public:
  Shaping shaping = Shaping::kCentredRank;
  double max_speed = 0.15;  // of ClipUp
  double step_size = 0;     // 0: 0.75 of it
  double momentum = 0.9;
  double radius = 0;  // of the first population: the length of its deviations; 0: 15 max_speed
  double sigma_learning_rate = 0.1, sigma_change_max = 0.2;

  PgpeConfig() : SeparableConfig({.population = 200, .mirrored = true}) {}
  std::unique_ptr<EvolutionConfig> Clone() const override {
    return std::make_unique<PgpeConfig>(*this);
  }
  void Bind(ConfigTable& table) override {
    BindMembers(table);
    table.Add("pgpe.shaping", &shaping, kPgpeShapings, "transform of fitness for the update");
    table.Add("pgpe.max_speed", &max_speed, {1e-9, 1e6}, "",
              "maximum length of a step of the mean");
    table.Add("pgpe.step_size", &step_size, {0, 1e6}, "",
              "length of the normalised gradient in a step; 0 = 0.75 pgpe.max_speed");
    table.Add("pgpe.momentum", &momentum, {0, 1}, "", "momentum of ClipUp");
    table.Add("pgpe.radius", &radius, {0, 1e6}, "",
              "length of the vector of first deviations; 0 = 15 pgpe.max_speed");
    table.Add("pgpe.sigma_learning_rate", &sigma_learning_rate, {0, 1000}, "",
              "learning rate of the deviations");
    table.Add("pgpe.sigma_change_max", &sigma_change_max, {0, 1}, "",
              "maximum relative change of a deviation per generation");
    BindTest(table, "pgpe", budget);
    BindBudget(table, "pgpe", budget);
  }
  std::string table() const override { return "pgpe"; }
  std::unique_ptr<EvolutionAlgorithm> Make(const EvolutionSetup& setup) const override;
};

class Pgpe : public SeparableEvolution {
 public:
  Pgpe(const PgpeConfig& c, const EvolutionSetup& setup)
      : SeparableEvolution(c, setup, Deviation(c, setup.network), 1), config_(c) {}

 private:
  static double Deviation(const PgpeConfig& c, const NetworkDescription& network) {
    const double radius = c.radius > 0 ? c.radius : 15 * c.max_speed;
    return radius / std::sqrt(static_cast<double>(network.evolved_count));
  }

  nlohmann::json Move(std::span<const double> fitness, std::span<const uint64_t> keys,
                      SeparableState& next) const override {
    // 1 weights of the pairs: F+ - F-, and F+ + F- - 2 mean
    const std::vector<double> f = Shape(config_.shaping, fitness);
    double mean = 0;
    for (const double value : f) mean += value / static_cast<double>(f.size());
    std::vector<double> a, b;
    for (size_t j = 0; j < keys.size(); ++j) {
      a.push_back((f[2 * j] - f[2 * j + 1]) / static_cast<double>(f.size()));
      b.push_back((f[2 * j] + f[2 * j + 1] - 2 * mean) / static_cast<double>(f.size()));
    }
    // 2 gradients of the mean, sigma sum a e, and of sigma, sigma sum b (e^2 - 1); sigma moves
    std::vector<double> gradient(parameters());
    ForMoments(
        keys, a, b, [&](size_t first, std::span<const double> of_a, std::span<const double> of_b) {
          for (size_t k = 0; k < of_a.size(); ++k) {
            const double sigma = next.deviation[first + k];
            gradient[first + k] = sigma * of_a[k];
            const double most = config_.sigma_change_max * sigma;
            const double change = config_.sigma_learning_rate * sigma * of_b[k];
            next.deviation[first + k] = static_cast<float>(sigma + std::clamp(change, -most, most));
          }
        });
    // 3 ClipUp: v = momentum v + step g / |g|, no longer than max_speed
    const double step = config_.step_size > 0 ? config_.step_size : 0.75 * config_.max_speed;
    double length = 0, speed = 0;
    for (const double g : gradient) length += g * g;
    length = std::sqrt(length);
    std::vector<double> velocity(parameters());
    for (size_t i = 0; i < velocity.size(); ++i) {
      velocity[i] =
          config_.momentum * next.path1[i] + (length > 0 ? step * gradient[i] / length : 0);
      speed += velocity[i] * velocity[i];
    }
    speed = std::sqrt(speed);
    const double scale = speed > config_.max_speed ? config_.max_speed / speed : 1;
    for (size_t i = 0; i < velocity.size(); ++i) {
      next.path1[i] = static_cast<float>(scale * velocity[i]);
      next.mean[i] = static_cast<float>(next.mean[i] + scale * velocity[i]);
    }
    return {{"speed", scale * speed}, {"gradient_norm", length}};
  }

  const PgpeConfig config_;
};

std::unique_ptr<EvolutionAlgorithm> PgpeConfig::Make(const EvolutionSetup& setup) const {
  return std::make_unique<Pgpe>(*this, setup);
}

}  // namespace

std::unique_ptr<EvolutionConfig> MakePgpeConfig() { return std::make_unique<PgpeConfig>(); }

}  // namespace samara
