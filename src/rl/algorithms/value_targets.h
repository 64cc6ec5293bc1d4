// Checks for algorithms that make the targets of values inside their loss.
#pragma once

#include "rl/learner/learning_config.h"

namespace samara {

// kConfig: values that are to be normalized by the moments of their targets.
inline Status CheckNoNormalizedValue(const LearningConfig& config) {
  if (!config.network.normalize_value) return Status::Ok();
  return {Code::kConfig, "network.normalize_value=true: " + config.algorithm +
                             " has no targets to normalize values by; expected false"};
}

}  // namespace samara
