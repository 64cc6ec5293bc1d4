// Gymnasium's MuJoCo tasks, version 5, as data: one row per task, its observation and its reward as
// functions of the simulator's state.
#pragma once

#include <mujoco/mujoco.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/rng.h"
#include "env/goal.h"

namespace samara {

// Fills an observation from the left.
class ObservationWriter {
 public:
  explicit ObservationWriter(std::span<float> out) : out_(out) {}
  void Add(mjtNum value) { out_[used_++] = static_cast<float>(value); }
  void Add(std::span<const mjtNum> values) {
    for (const mjtNum v : values) Add(v);
  }
  // Values clipped to [-limit, limit].
  void AddClipped(std::span<const mjtNum> values, mjtNum limit) {
    for (const mjtNum v : values) Add(std::clamp(v, -limit, limit));
  }
  size_t used() const { return used_; }

 private:
  std::span<float> out_;
  size_t used_ = 0;
};

struct Judgement {
  double reward;
  bool terminated;
};

// A box that stands in the world: its middle, and half its sizes in metres.
struct MujocoWall {
  double x, y, half_x, half_y;
};
constexpr double kMujocoWallHeight = 2;

struct MujocoTask {
  std::string_view id;      // "Hopper-v5"
  std::string_view xml;     // file among Gymnasium's assets
  std::string_view sha256;  // of that file
  int64_t observations;     // numbers in an observation
  int64_t frame_skip;       // physics steps per action
  int64_t steps_max;
  // Initial state: the model's own plus uniform noise of +-noise; speeds normal with that deviation
  // when noise_normal. `draw` replaces both.
  double position_noise, speed_noise;
  bool speed_normal;
  void (*draw)(const CounterRng& rng, std::span<double> qpos, std::span<double> qvel);
  // The coordinate whose velocity is rewarded; null when none is.
  double (*position)(const mjModel& model, const mjData& data);
  void (*observe)(const mjModel& model, const mjData& data, ObservationWriter& out);
  // Unless the task has goals: after an action, `velocity` is that of `position` over the action's
  // time.
  Judgement (*judge)(const mjModel& model, const mjData& data, double velocity);
  // How many of the first coordinates of qpos are where the body is: x, or x and y.
  int64_t plane = 0;
  std::span<const MujocoWall> walls{};
  bool above = false;     // pictures show it from above instead of from the side
  bool implicit = false;  // MuJoCo's implicitfast integrator instead of the file's RK4
  bool solid = false;     // parts that collide with nothing in the file collide with the walls
  GoalSpec goal{};        // size above 0: the observation says what is paid, instead of `judge`
};

std::span<const MujocoTask> MujocoTasks();

}  // namespace samara
