// CartPole-v1: a pole on a cart that is pushed left or right (Barto, Sutton and Anderson 1983).
// Gymnasium's task: the same constants, formulas and order of operations, state in double.
// Observation: x, dx/dt, angle, dangle/dt. Reward 1 a step; ends when |x| > 2.4 or |angle| > 12
// degrees.
#pragma once

#include <memory>

#include "env/interface.h"

namespace samara {

// With `render`, Render draws 200 x 300 pictures.
std::unique_ptr<Environment> MakeCartPole(bool render);

}  // namespace samara
