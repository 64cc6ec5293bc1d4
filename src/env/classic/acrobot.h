// Acrobot-v1: two links hang from a pivot, a motor at the middle joint swings the tip up (Sutton
// 1996). Gymnasium's task: the book's dynamics, fourth-order Runge-Kutta, the same formulas and
// order of operations. Observation: cos and sin of both angles, both angular velocities. Reward -1
// a step, 0 for the one that lifts the tip a link's length above the pivot, which ends the episode.
#pragma once

#include <memory>

#include "env/interface.h"

namespace samara {

// With `render`, Render draws 200 x 200 pictures.
std::unique_ptr<Environment> MakeAcrobot(bool render);

}  // namespace samara
