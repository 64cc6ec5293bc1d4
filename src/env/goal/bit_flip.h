// BitFlip: turn a string of bits into another one, a bit a step (Andrychowicz et al. 2017, arXiv
// 1707.01495, section 3.1): without rewards for what is nearly right, exploration finds the target
// by chance alone, once in 2^n episodes.
//
// Observation: the bits (the achieved goal), then the target (the desired goal), 0 or 1 each.
// Action i flips bit i. Reward: -1, and 0 at the step that reaches the target and terminates; at
// most n steps. Both strings are drawn uniformly.
#pragma once

#include <memory>
#include <string_view>

#include "env/interface.h"

namespace samara {

// `bits`: 2 at least.
std::unique_ptr<Environment> MakeBitFlip(std::string_view id, int64_t bits, bool render);

}  // namespace samara
