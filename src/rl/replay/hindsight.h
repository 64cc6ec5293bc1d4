// Hindsight experience replay (Andrychowicz et al. 2017, arXiv 1707.01495), strategy "future": a
// sampled step is learned from as if what its episode achieved later had been its goal.
//
// Thread safety: none; the transitions are views until the next call for the same row and until the
// replay's next Add.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/rng.h"
#include "env/goal.h"
#include "rl/replay/unroll_replay.h"

namespace samara {

struct HindsightRule {
  GoalSpec goal;           // of the environment, with the rewards that the learner sees
  double fraction = 0;     // of the sampled steps that get another goal
  size_t observation = 0;  // floats
};

class Hindsight {
 public:
  // `rows`: of a minibatch.
  Hindsight(const HindsightRule& rule, size_t rows)
      : rule_(rule), copies_(2 * rows * rule.observation) {}

  // The step, row `row` of a minibatch, by draws 2 row and 2 row + 1 of `rng`: with probability
  // `fraction` for a goal that is uniform among those achieved after it, this step and later ones
  // of its episode that the replay holds. All rewards of `returns` are computed for that goal.
  // Where the environment ends episodes at their goal, the new goal ends this one.
  // REQUIRES: ReplayShape::episodes and row < rows, unless `fraction` is 0.
  Transition At(const UnrollReplay& replay, uint64_t step, const ReturnRule& returns,
                const CounterRng& rng, size_t row);

 private:
  std::span<const std::byte> WithGoal(std::span<const std::byte> observation,
                                      std::span<const float> goal, size_t copy);

  const HindsightRule rule_;
  std::vector<float> copies_;  // [2 rows][observation]: of each row, before and after
};

}  // namespace samara
