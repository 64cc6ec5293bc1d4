// SAC's two forms, for continuous actions (sac.cc) and for discrete ones (sac_discrete.cc), share
// this: keys, temperature, and a policy with several critics and their targets.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "nn/perceptron.h"
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

// A policy, critics, and the temperature's parameter, in this order; the targets follow the
// critics.
class SacNetworks : public ReplayAlgorithm {
 public:
  const ParameterBlocks& learned() const override { return learned_; }
  const ParameterBlocks& targets() const override { return targets_; }
  size_t acting() const override { return policy_->size(); }
  ReturnRule returns() const override { return {1, config_.gamma}; }
  void InitializeLearned(uint64_t seed, Initializer initializer,
                         std::span<float> learned) const override;
  std::span<const float> Followed(std::span<const float> learned) const override {
    return CriticsOf(learned);
  }
  std::span<float> Weighted(std::span<float> gradient) const override {
    return CriticsOf(gradient);
  }
  void Bound(std::span<float> learned) const override;
  bool learned_sees_next() const override { return true; }
  double polyak(uint64_t /*step*/) const override { return config_.polyak; }
  std::map<std::string, double> coefficients(std::span<const float> learned) const override {
    return {{"entropy_cost", temperature_.At(learned[temperature_at_])}};
  }

 protected:
  SacNetworks(const LearningConfig& config, std::shared_ptr<const Perceptron> policy,
              std::shared_ptr<const Perceptron> critic);
  template <typename T>
  std::span<T> CriticsOf(std::span<T> learned) const {
    return learned.subspan(policy_->size(), targets_.size());
  }
  template <typename T>
  std::span<T> Critic(std::span<T> all, size_t j) const {
    return all.subspan(j * critic_->size(), critic_->size());
  }

  const SacParameters config_;
  const SacTemperature temperature_;
  const std::shared_ptr<const Perceptron> policy_, critic_;
  ParameterBlocks learned_, targets_;
  size_t temperature_at_ = 0;  // where its parameter is among the learned
};

// kConfig: a network that is no perceptron.
Result<std::unique_ptr<ReplayAlgorithm>> MakeSac(const AgentSetup& setup);
// REQUIRES: actions are discrete. kConfig also: they have several parts, or an entropy target that
// no policy reaches.
Result<std::unique_ptr<ReplayAlgorithm>> MakeDiscreteSac(const AgentSetup& setup);

}  // namespace samara
