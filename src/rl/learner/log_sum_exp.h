// The logarithm of a softmax's denominator.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

namespace samara {

// log of the sum of exp(logit): a logit less it is a log-probability.
inline float LogSumExp(std::span<const float> logits) {
  const float most = *std::ranges::max_element(logits);
  float sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return most + std::log(sum);
}

}  // namespace samara
