// The squashed normal of rl/learner/distribution.h on plain numbers, one dimension at a time: a
// network gives a mean and a parameter of the deviation, an action is tanh of a sample.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace samara {

// Numbers that follow from the parameter of the deviation alone.
struct SquashedDeviation {
  static constexpr float kSmallest = 1e-3F;

  SquashedDeviation() = default;
  explicit SquashedDeviation(float its_output)
      : output(its_output),
        deviation(Softplus(its_output) + kSmallest),
        log_deviation(std::log(deviation)),
        slope(1 / (1 + std::exp(-its_output))) {}

  static float Softplus(float x) { return std::max(x, 0.0F) + std::log1p(std::exp(-std::abs(x))); }

  float output = std::numeric_limits<float>::quiet_NaN();
  float deviation = 0, log_deviation = 0;
  float slope = 0;  // of the deviation by its parameter
};

struct SquashedNormal : SquashedDeviation {
  SquashedNormal(float mean_output, float deviation_output)
      : SquashedNormal(mean_output, SquashedDeviation(deviation_output)) {}
  SquashedNormal(float mean_output, const SquashedDeviation& its_deviation)
      : SquashedDeviation(its_deviation), mean(mean_output) {}

  float Sample(float noise) const { return mean + deviation * noise; }
  // Returns the log-probability of the action tanh(sample), by the noise that made it.
  float LogProb(float noise, float sample) const {
    constexpr float kHalfLog2Pi = 0.918938533F;
    return -0.5F * noise * noise - log_deviation - kHalfLog2Pi - LogSquashing(sample);
  }
  // log(1 - tanh(u)^2), without the cancellation.
  static float LogSquashing(float u) {
    return 2 * (std::numbers::ln2_v<float> - u - Softplus(-2 * u));
  }

  float mean;
};

}  // namespace samara
