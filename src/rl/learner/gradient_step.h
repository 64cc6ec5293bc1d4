// The arithmetic of rl/learner/optimizer.h on plain arrays: one pass over parameters, their
// gradients and the running means, in vector instructions.
#pragma once

#include <cstdint>
#include <span>

#include "rl/learner/learning_config.h"

namespace samara {

// Arrays of one length, of which no two overlap.
struct GradientStep {
  std::span<float> parameter;       // changed
  std::span<float> mean, square;    // running means of the gradients and of their squares; changed
  std::span<const float> gradient;  // multiplied by `scale` first
  double scale = 1;
  double learning_rate = 0;
};

// config.kind is rmsprop or rmsprop_torch; `mean` is not used.
void RmsPropStep(const OptimizerConfig& config, const GradientStep& step);
// config.kind is adam or adam_torch. steps: this one is the steps-th, from 1.
void AdamStep(const OptimizerConfig& config, const GradientStep& step, uint64_t steps);

}  // namespace samara
