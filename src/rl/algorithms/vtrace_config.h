// Parameters of V-trace.
#pragma once

#include <cstdint>
#include <memory>

#include "rl/learner/learning_config.h"

namespace samara {

// kImpala: the paper's, with lambda inside the traces c. kSeed: generalised advantages, with lambda
// in the policy's advantage too. They agree when lambda and all clips are 1.
enum class VtraceForm : uint8_t { kImpala, kSeed };
inline constexpr EnumName<VtraceForm> kVtraceFormNames[] = {{VtraceForm::kImpala, "impala"},
                                                            {VtraceForm::kSeed, "seed"}};
// kBootstrap: a truncated transition is worth gamma V(final observation) beyond its reward.
// kIgnore: it teaches nothing, its target is its own value.
enum class Truncation : uint8_t { kBootstrap, kIgnore };
inline constexpr EnumName<Truncation> kTruncationNames[] = {{Truncation::kBootstrap, "bootstrap"},
                                                            {Truncation::kIgnore, "ignore"}};
// Reduction of the loss over the T x B entries of a batch. kSum: as IMPALA's own code.
enum class LossOver : uint8_t { kMean, kSum };
inline constexpr EnumName<LossOver> kLossOverNames[] = {{LossOver::kMean, "mean"},
                                                        {LossOver::kSum, "sum"}};

struct VtraceConfig {
  VtraceForm form = VtraceForm::kImpala;
  double gamma = 0.99;  // per agent step
  double lambda = 1;
  double rho_clip = 1;         // of the importance weights in the value targets
  double rho_clip_policy = 1;  // of those in the policy's advantage
  double c_clip = 1;           // of the traces; kImpala only, at most rho_clip
  Truncation truncation = Truncation::kBootstrap;
};

struct VtraceLossConfig {
  // above 0: PPO's clipped objective (Schulman et al. 2017, equation 7) instead of the policy
  // gradient: the ratio to the policy that acted is bounded by this, and counts instead of the
  // weight in the policy's advantage. APPO: Petrenko et al. 2020 (arXiv 2006.11751), section 3.2.
  double clip = 0;
  double value_cost = 0.5;
  double kl_cost = 0;  // of log mu - log pi
  LossOver over = LossOver::kMean;
};

class VtraceParameters : public AlgorithmConfig {
 public:
  std::unique_ptr<AlgorithmConfig> Clone() const override {
    return std::make_unique<VtraceParameters>(*this);
  }
  void Bind(ConfigTable& table) override;
  Status Check(const LearningConfig& config) const override;

  VtraceConfig vtrace;
  VtraceLossConfig loss;
};

}  // namespace samara
