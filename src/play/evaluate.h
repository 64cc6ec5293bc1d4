// `samara eval`: fresh episodes of one policy.
#pragma once

#include <vector>

#include "play/saved_policy.h"

namespace samara {

struct EvaluationOptions {
  int64_t episodes = 200;
  std::vector<int32_t> noops;  // one episode per entry, in this order, instead of drawn counts
  uint64_t seed = 0;           // of the fresh episodes
  bool random = false;         // the random policy instead
};

// Results in the order of the episodes.
Result<std::vector<EpisodeResult>> EvaluatePolicy(const Policy& policy,
                                                  const EvaluationOptions& options,
                                                  const StopToken& stop);

}  // namespace samara
