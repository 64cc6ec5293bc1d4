// A MuJoCo model as a simple picture for people: its round parts as strokes, its boxes as they are,
// from the side or from above, without MuJoCo's renderer and without OpenGL.
#pragma once

#include <mujoco/mujoco.h>

#include "env/mujoco/tasks.h"
#include "env/picture.h"

namespace samara {

constexpr int64_t kMujocoPictureHeight = 300, kMujocoPictureWidth = 400;

// Draws where body 1 is: the window follows it. With walls the window is theirs and the start's,
// from above, and moves only when the body would leave it.
void DrawMujoco(const MujocoTask& task, const mjModel& model, const mjData& data, Picture& picture);

}  // namespace samara
