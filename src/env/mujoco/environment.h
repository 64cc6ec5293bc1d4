// A MuJoCo task as an environment: one shared model, one mjData per instance.
#pragma once

#include "env/interface.h"
#include "env/mujoco/tasks.h"

namespace samara {

// `task` outlives the factory (it is a row of MujocoTasks). The state of ResetTo is qpos, then
// qvel. With `render` instances draw pictures (view.h).
Result<EnvironmentFactory> MujocoEnvironment(const MujocoTask& task, bool render);

}  // namespace samara
