// The squashed normal of rl/learner/distribution.h on plain numbers, one dimension at a time: a
// network gives a mean and a parameter of the deviation, an action is tanh of a sample.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

namespace samara {

struct SquashedNormal {
  static constexpr float kSmallestDeviation = 1e-3F;

  SquashedNormal(float mean_output, float deviation_output)
      : mean(mean_output),
        deviation(Softplus(deviation_output) + kSmallestDeviation),
        slope(1 / (1 + std::exp(-deviation_output))) {}

  float Sample(float noise) const { return mean + deviation * noise; }
  // Returns the log-probability of the action tanh(sample), by the noise that made it.
  float LogProb(float noise, float sample) const {
    constexpr float kHalfLog2Pi = 0.918938533F;
    return -0.5F * noise * noise - std::log(deviation) - kHalfLog2Pi - LogSquashing(sample);
  }
  // log(1 - tanh(u)^2), without the cancellation.
  static float LogSquashing(float u) {
    return 2 * (std::numbers::ln2_v<float> - u - Softplus(-2 * u));
  }
  static float Softplus(float x) { return std::max(x, 0.0F) + std::log1p(std::exp(-std::abs(x))); }

  float mean, deviation;
  float slope;  // of the deviation by its parameter
};

}  // namespace samara
