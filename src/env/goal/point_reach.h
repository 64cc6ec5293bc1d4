// PointReach-v0: push a mass on a plane to a goal and keep it there, rewarded only where it is near
// enough.
//
// Observation: velocity (2), position (2: the achieved goal), goal (2: the desired one). Actions: a
// force along x and y, in [-1, 1]. Per step of 0.1: velocity <- 0.9 velocity + 0.1 force, position
// <- position + 0.1 velocity within [-1, 1]; a wall stops the velocity across it. Reward: 0 within
// 0.05 of the goal, else -1. An episode has 50 steps. It begins at rest; position and goal are
// drawn uniformly from [-0.9, 0.9] squared.
#pragma once

#include <memory>

#include "env/interface.h"

namespace samara {

std::unique_ptr<Environment> MakePointReach(bool render);

}  // namespace samara
