// The hard maze seen from above: the observation of a robot with a camera, and pictures for people.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "env/maze/maze.h"
#include "env/picture.h"

namespace samara {

constexpr int64_t kMazeView = 84;  // rows and columns of an observation

// An observation: a pixel is kMazeExtent / 84 = 2.5 units wide and has the gray of the last of
// these that its centre is in: floor 0; goal 64, a disc of kGoalRadius; wall 128, up to 1.8 units
// from it; robot 192, a disc of kRobotRadius; 255, a disc of radius 3 that is 5 units ahead of the
// robot's centre and shows its heading.
class MazeView {
 public:
  explicit MazeView(const Maze& maze);
  // `pixels`: row by row, kMazeView squared. Any finite robot can be drawn.
  void Draw(const Robot& robot, std::span<std::byte> pixels) const;

 private:
  std::array<std::byte, kMazeView * kMazeView> ground_;  // everything but the robot
};

// The same in colour, two pixels a unit.
constexpr int64_t kMazePictureHeight = 416, kMazePictureWidth = 400;
void DrawMaze(const Maze& maze, const Robot& robot, Picture& picture);

}  // namespace samara
