// The hard maze of Lehman and Stanley ("Abandoning Objectives", Evolutionary Computation 2011) and
// the robot in it: geometry, one step of physics, sensors. What an episode is made of them is in
// maze_environment.h.
//
// Lengths are the maze's units, angles degrees from the x axis towards the y axis; y grows
// downwards where the maze is drawn. Everything is computed in double by a fixed sequence of
// operations, the same bits on every machine.
#pragma once

#include <cstddef>
#include <span>

namespace samara {

struct MazePoint {
  double x = 0, y = 0;
  bool operator==(const MazePoint&) const = default;
};

struct MazeWall {
  MazePoint a, b;
};

struct Maze {
  std::span<const MazeWall> walls;
  MazePoint start, goal;
  double heading = 0;  // at the start
};

// The coordinates of uber-research/deep-neuroevolution, gym_tensorflow/maze/hard_maze.txt.
const Maze& HardMaze();

constexpr double kMazeExtent = 210;  // both coordinates of all walls are within [0, kMazeExtent]
constexpr double kRobotRadius = 8;
constexpr double kGoalRadius = 10;  // the goal is reached below this distance
constexpr double kRobotSpeed = 3;   // largest speed (units a step) and turn (degrees a step)
constexpr size_t kRobotSensors = 11;

struct Robot {
  MazePoint at;
  double heading = 0;          // [0, 360]
  double speed = 0, turn = 0;  // units and degrees a step; negative: backwards, to -y first
};

Robot RobotAtStart(const Maze& maze);

// One step. Speed and turn move towards their targets by at most 0.2 and stay within +-kRobotSpeed;
// the robot moves along the heading it had, then turns. A move that would bring its centre nearer
// than kRobotRadius to a wall is dropped, and the turn is not.
void MoveRobot(const Maze& maze, double turn_target, double speed_target, Robot& robot);

// Writes what the robot senses (kRobotSensors numbers): 1; the distance to the nearest wall at -90,
// -45, 0, 45, 90 and 180 degrees from its heading, at most 100, divided by 100; and which quarter
// the goal is in, ahead, at 90, 180 and 270 degrees, as four numbers of which one is 1.
void SenseMaze(const Maze& maze, const Robot& robot, std::span<float> out);

double GoalDistance(const Maze& maze, const Robot& robot);

// Squared distance of a point from the nearest wall.
double Clearance2(std::span<const MazeWall> walls, MazePoint p);
// Squared distance of a point from one wall.
double Distance2(const MazeWall& wall, MazePoint p);

}  // namespace samara
