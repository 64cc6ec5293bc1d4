// Parity: whether a string of four bits has an odd number of ones, read one bit a step, so that a
// policy without memory cannot know.
//
// An episode is all 16 strings, one after the other, 64 steps; each begins a sequence of its own
// (StepResult::new_sequence). Observation: the bit, 0 or 1. The action is two numbers, the logits
// of even and odd; those that answer a string's last bit count. Reward: the log-likelihood of the
// right class, divided by 16, so that a return is minus the mean negative log-likelihood. At the
// end 1 on top if all 16 are classified (the first maximum wins): a return is at least 0 exactly
// then, which is the criterion. Nothing is drawn at random.
//
// With `render`, Render draws 80 x 160 pictures.
#pragma once

#include <memory>

#include "env/interface.h"

namespace samara {

std::unique_ptr<Environment> MakeParity(bool render);

}  // namespace samara
