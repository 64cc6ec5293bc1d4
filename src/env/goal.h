// SPDX-License-Identifier: Apache-2.0 OR MIT
// Goals: what an environment whose reward depends on a goal declares of it, so that a learner can
// compute the reward that a step would have had for another goal.
//
// The observation of such an environment is a vector of floats whose last 2 * size numbers are the
// achieved goal (where the environment is now) and the desired one, which is constant during an
// episode. The reward of a step depends on the goals after it alone: `reached` where their
// Euclidean distance is at most `threshold`, else `missed`.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace samara {

struct GoalSpec {
  int64_t size = 0;  // numbers of a goal; 0: the environment has none
  double threshold = 0;
  double reached = 0, missed = -1;  // rewards
  bool terminates = false;          // whether a step that reaches the goal ends the episode

  bool operator==(const GoalSpec&) const = default;
  std::span<const float> Achieved(std::span<const float> observation) const {
    const auto n = static_cast<size_t>(size);
    return observation.subspan(observation.size() - 2 * n, n);
  }
  std::span<const float> Desired(std::span<const float> observation) const {
    return observation.last(static_cast<size_t>(size));
  }
  // REQUIRES: goals of equal size.
  bool Reached(std::span<const float> achieved, std::span<const float> desired) const {
    double square = 0;
    for (size_t i = 0; i < achieved.size(); ++i) {
      const double apart = double{achieved[i]} - double{desired[i]};
      square += apart * apart;
    }
    return std::sqrt(square) <= threshold;
  }
  // Whether the observation has reached its own desired goal.
  bool Reached(std::span<const float> observation) const {
    return Reached(Achieved(observation), Desired(observation));
  }
};

}  // namespace samara
