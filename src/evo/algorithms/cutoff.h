// How long an episode of the population may last, in steps of the agent.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/status.h"

namespace samara {

// `env_default`: the environment's own limit; an integer; or `adaptive:START,THRESHOLD,RATIO,MAX`:
// from START on, RATIO times as long, at most MAX, after each generation in which at least
// THRESHOLD of the episodes reached the limit.
struct Cutoff {
  int64_t start = 0;  // 0: the environment's own limit
  double threshold = 2, ratio = 1;
  int64_t max = 0;

  static Result<Cutoff> Parse(std::string_view text);  // kConfig
  // The limit after a generation that was played with `limit`.
  int64_t Next(int64_t limit, uint64_t reached, uint64_t episodes) const;
};

}  // namespace samara
