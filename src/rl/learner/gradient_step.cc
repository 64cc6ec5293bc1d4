// Compiled so that nothing waits for errno after a square root (CMakeLists.txt): no value changes.
#include "rl/learner/gradient_step.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace samara {
namespace {

// RMSProp, of either kind; `mean` is not used.
void RmsPropStep(const OptimizerConfig& config, const GradientStep& step) {
  float* __restrict const theta = step.parameter.data();
  float* __restrict const square = step.square.data();
  const float* __restrict const g = step.gradient.data();
  const auto clip = static_cast<float>(step.scale), eps = static_cast<float>(config.epsilon);
  const auto lr = static_cast<float>(step.learning_rate), d = static_cast<float>(config.decay),
             d1 = static_cast<float>(1 - config.decay);
  const float inside = config.kind == OptimizerKind::kRmsprop ? eps : 0, outside = eps - inside;
  for (size_t i = 0; i < step.gradient.size(); ++i) {
    const float gi = g[i] * clip;
    const float s = d * square[i] + d1 * gi * gi;
    square[i] = s;
    theta[i] -= lr * gi / (std::sqrt(s + inside) + outside);
  }
}

// Adam, of either kind.
void AdamStep(const OptimizerConfig& config, const GradientStep& step, uint64_t steps) {
  float* __restrict const theta = step.parameter.data();
  float* __restrict const mean = step.mean.data();
  float* __restrict const square = step.square.data();
  const float* __restrict const g = step.gradient.data();
  const auto t = static_cast<double>(steps);
  const double bias1 = 1 - std::pow(config.beta1, t);
  const double root2 = std::sqrt(1 - std::pow(config.beta2, t));
  const bool torchs = config.kind == OptimizerKind::kAdamTorch;
  const auto clip = static_cast<float>(step.scale), eps = static_cast<float>(config.epsilon);
  const auto b1 = static_cast<float>(config.beta1), c1 = static_cast<float>(1 - config.beta1),
             b2 = static_cast<float>(config.beta2), c2 = static_cast<float>(1 - config.beta2),
             lr = static_cast<float>(step.learning_rate * (torchs ? 1 : root2) / bias1),
             spread = static_cast<float>(torchs ? 1 / root2 : 1);
  for (size_t i = 0; i < step.gradient.size(); ++i) {
    const float gi = g[i] * clip;
    const float m = b1 * mean[i] + c1 * gi, v = b2 * square[i] + c2 * gi * gi;
    mean[i] = m, square[i] = v;
    theta[i] -= lr * m / (std::sqrt(v) * spread + eps);
  }
}

}  // namespace

void Apply(const OptimizerConfig& config, const GradientStep& step, uint64_t steps) {
  if (config.rmsprop())
    RmsPropStep(config, step);
  else
    AdamStep(config, step, steps);
}

double LearningRateAt(const OptimizerConfig& config, double frames) {
  if (config.schedule == RateSchedule::kConstant) return config.learning_rate;
  return config.learning_rate * std::max(0.0, 1 - frames / config.schedule_frames);
}

double SumOfSquares(std::span<const float> values) {
  constexpr size_t kLanes = 8;
  double lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  for (; i < values.size(); ++i) lanes[0] += static_cast<double>(values[i]) * values[i];
  return std::accumulate(std::begin(lanes), std::end(lanes), 0.0);
}

}  // namespace samara
