// What both forms of SAC have: for continuous actions (sac.cc) and for discrete ones
// (sac_discrete.cc).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "rl/learner/agent.h"
#include "rl/learner/replay_algorithm.h"

namespace samara {

class SacParameters : public ReplayAlgorithmConfig {
 public:
  std::unique_ptr<AlgorithmConfig> Clone() const override {
    return std::make_unique<SacParameters>(*this);
  }
  void Bind(ConfigTable& table) override;
  Status Check(const LearningConfig& config) const override { return replay.Check(config); }

  double gamma = 0.99, polyak = 0.995;
  int64_t critics = 2;
};

// The temperature alpha: learn.entropy_cost, or exp(speed p) of a learned parameter p that moves
// toward an entropy (Haarnoja et al. 2018, arXiv 1812.05905, equation 18).
class SacTemperature {
 public:
  explicit SacTemperature(const LearnConfig& learn);
  float first() const;  // p at the beginning
  double At(float p) const;
  struct Loss {
    double value = 0;
    float by_parameter = 0;
  };
  Loss LossAt(float p, double entropy) const;
  float Bounded(float p) const;  // a run that went astray finds back

 private:
  const double speed_, cost_;
  std::optional<double> target_;
};

// kConfig: a network that is no perceptron.
Result<std::unique_ptr<ReplayAlgorithm>> MakeSac(const AgentSetup& setup);
// REQUIRES: actions are discrete. kConfig also: they have several parts, or an entropy target that
// no policy reaches.
Result<std::unique_ptr<ReplayAlgorithm>> MakeDiscreteSac(const AgentSetup& setup);

}  // namespace samara
