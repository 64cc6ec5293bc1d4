// Episodes in the hard maze: 400 steps from the same start, which end early when the goal is
// reached. Nothing is drawn at random: every episode of a deterministic policy is the same.
//
// Reward: 0 until the last step of the episode, which pays minus the distance from the goal.
// Position: the robot's (x, y).
#pragma once

#include <memory>
#include <string>

#include "env/interface.h"

namespace samara {

// How an action becomes the targets of turn and speed. The robots of the published programs take
// two outputs o of [0, 1], and their targets are 6 (o - 0.5). Actions a are of [-1, 1], to which
// policies are clipped.
enum class MazeOutputs : uint8_t {
  kShifted,   // o = a + 0.5, clamped to [0, 1]
  kUnit,      // o = a, clamped to [0, 1]: for networks that end with a sigmoid
  kDiscrete,  // 25 actions: 5 turn + speed, each one of o = 0, .25, .5, .75, 1
};

struct MazeOptions {
  std::string id;  // "HardMaze"
  MazeOutputs outputs = MazeOutputs::kShifted;
  bool picture = false;       // observes itself from above (maze_picture.h) instead of 11 sensors
  int64_t action_repeat = 1;  // steps an action is held for
  // The last step pays minus the length of the path to the goal (path.h), 0 when it is reached.
  bool path_reward = false;
};

// With `render`, Render draws pictures.
std::unique_ptr<Environment> MakeMaze(const MazeOptions& options, bool render);

}  // namespace samara
