// The optimizers of optimizer.h on one array of parameters, without torch.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "rl/learner/gradient_step.h"

namespace samara {

inline bool AllFinite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float x) { return std::isfinite(x); });
}

// One thread at a time.
class FlatOptimizer {
 public:
  FlatOptimizer(const OptimizerConfig& config, size_t parameters)
      : config_(config),
        mean_(parameters, 0.0F),
        square_(parameters, config.kind == OptimizerKind::kRmsprop ? 1.0F : 0.0F) {}

  // `norm`: the gradient's, which is finite; it is clipped to config.clip_norm.
  void Step(std::span<float> parameters, std::span<const float> gradient, double norm,
            double frames) {
    const bool clip = config_.clip_norm > 0 && norm > config_.clip_norm;
    Apply(config_,
          {.parameter = parameters,
           .mean = mean_,
           .square = square_,
           .gradient = gradient,
           .scale = clip ? config_.clip_norm / norm : 1,
           .learning_rate = LearningRateAt(config_, frames)},
          ++steps_);
  }

  // State of a checkpoint.
  std::span<const float> mean() const { return mean_; }
  std::span<const float> square() const { return square_; }
  uint64_t steps() const { return steps_; }  // applied so far
  void Restore(std::span<const float> mean, std::span<const float> square, uint64_t steps) {
    mean_.assign(mean.begin(), mean.end()), square_.assign(square.begin(), square.end());
    steps_ = steps;
  }
  bool finite() const { return AllFinite(mean_) && AllFinite(square_); }

 private:
  OptimizerConfig config_;
  std::vector<float> mean_, square_;
  uint64_t steps_ = 0;
};

}  // namespace samara
