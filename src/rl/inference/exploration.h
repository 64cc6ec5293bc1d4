// Exploration of agents that act by the values of actions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/rng.h"
#include "rl/inference/model.h"

namespace samara {

// Each environment has a rate of its own, of N environments number i
//   first (last / first)^(i / (N - 1))
// (Horgan et al. 2018, arXiv 1803.00933, section 4.1), so that nothing has to be scheduled. One
// alone has the first.
struct Exploration {
  double first = 0, last = 0;
  uint32_t environments = 1;  // of all learners

  double Rate(uint32_t environment) const {
    if (environments < 2 || last <= 0) return environment == 0 ? first : last;
    const double at = static_cast<double>(environment) / (environments - 1);
    return first * std::pow(last / first, std::min(1.0, at));
  }
  // The row's action, by its values; `environment` is the row's slot among those of all learners.
  int32_t Choose(const InferenceRow& row, uint32_t environment,
                 std::span<const float> values) const {
    const CounterRng rng(row.key);
    const bool explores = !row.greedy && rng.Uniform(uint64_t{row.step} * 2) < Rate(environment);
    if (explores)
      return static_cast<int32_t>(rng.UniformInt(uint64_t{row.step} * 2 + 1, values.size()));
    return static_cast<int32_t>(std::ranges::max_element(values) - values.begin());
  }
};

}  // namespace samara
