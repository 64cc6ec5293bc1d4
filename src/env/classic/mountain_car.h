// MountainCar-v0: a weak car must gather momentum between two hills (Moore 1990). Gymnasium's task:
// the same formulas and order of operations. Observation: position, velocity. Reward -1 a step;
// ends at position 0.5.
#pragma once

#include <memory>

#include "env/interface.h"

namespace samara {

// With `render`, Render draws 200 x 300 pictures.
std::unique_ptr<Environment> MakeMountainCar(bool render);

}  // namespace samara
