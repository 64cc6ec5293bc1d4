// Pendulum-v1: a motor too weak to lift a pendulum at once must swing it up. Gymnasium's task: the
// same formulas and order of operations, all in double (Gymnasium squares a float32 action in
// float32). Observation: cos, sin of the angle from upright, angular velocity. Action: torque of
// [-2, 2]. Reward -(angle^2 + .1 speed^2 + .001 torque^2); never terminates.
#pragma once

#include <memory>

#include "env/interface.h"

namespace samara {

// With `render`, Render draws 200 x 200 pictures.
std::unique_ptr<Environment> MakePendulum(bool render);

}  // namespace samara
