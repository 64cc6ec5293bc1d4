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

// One step of the optimizer of config.kind. steps: this one is the steps-th, from 1.
void Apply(const OptimizerConfig& config, const GradientStep& step, uint64_t steps);

// The learning rate after `frames` frames.
double LearningRateAt(const OptimizerConfig& config, double frames);
// Sums in a fixed order.
double SumOfSquares(std::span<const float> values);

}  // namespace samara
