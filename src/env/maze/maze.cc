#include "env/maze/maze.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/math.h"

namespace samara {
namespace {

constexpr double kDegree = 3.141592653589793 / 180;
constexpr double kHalfRoot = 0.7071067811865476;  // cos 45 degrees
constexpr double kRange = 100;                    // of a rangefinder
constexpr double kChange = 0.2;                   // of speed and turn in a step

constexpr std::array<MazeWall, 13> kHardMazeWalls{{
    {{41, 5}, {3, 8}},
    {{3, 8}, {4, 49}},
    {{4, 49}, {57, 53}},
    {{4, 49}, {7, 202}},
    {{7, 202}, {195, 198}},
    {{195, 198}, {186, 8}},
    {{186, 8}, {39, 5}},
    {{56, 54}, {56, 157}},
    {{57, 106}, {158, 162}},
    {{77, 201}, {108, 164}},
    {{6, 80}, {33, 121}},
    {{192, 146}, {87, 91}},
    {{56, 55}, {133, 30}},
}};

MazePoint operator-(MazePoint p, MazePoint q) { return {p.x - q.x, p.y - q.y}; }
double Cross(MazePoint p, MazePoint q) { return p.x * q.y - p.y * q.x; }
double Dot(MazePoint p, MazePoint q) { return p.x * q.x + p.y * q.y; }

struct Direction {
  double cosine, sine;
};
Direction DirectionOf(double degrees) { return {Cos(degrees * kDegree), Sin(degrees * kDegree)}; }

double Approach(double value, double target) {
  const double moved = value + std::clamp(target - value, -kChange, kChange);
  return std::clamp(moved, -kRobotSpeed, kRobotSpeed);
}

// Distances to the nearest wall from `p` along a line, both ways.
struct Ranges {
  double ahead = kRange, behind = kRange;
};
Ranges LookAlong(std::span<const MazeWall> walls, MazePoint p, MazePoint line) {
  Ranges nearest;
  for (const MazeWall& wall : walls) {
    // p + t line = a + s (b - a); no wall when they are parallel, or when they meet in its end
    const MazePoint along = wall.b - wall.a, to = wall.a - p;
    const double divisor = Cross(line, along);
    const double s = Cross(to, line) / divisor;
    if (!(s > 0 && s < 1)) continue;
    const double t = Cross(to, along) / divisor;
    if (t > 0) nearest.ahead = std::min(nearest.ahead, t);
    if (t < 0) nearest.behind = std::min(nearest.behind, -t);
  }
  return nearest;
}

}  // namespace

const Maze& HardMaze() {
  static constexpr Maze maze{.walls = kHardMazeWalls, .start = {36, 184}, .goal = {31, 20}};
  return maze;
}

Robot RobotAtStart(const Maze& maze) { return {.at = maze.start, .heading = maze.heading}; }

double Distance2(const MazeWall& wall, MazePoint p) {
  const MazePoint along = wall.b - wall.a, to = p - wall.a;
  const double t = std::clamp(Dot(to, along) / Dot(along, along), 0.0, 1.0);
  const MazePoint off{to.x - t * along.x, to.y - t * along.y};
  return Dot(off, off);
}

double Clearance2(std::span<const MazeWall> walls, MazePoint p) {
  double least = HUGE_VAL;
  for (const MazeWall& wall : walls) least = std::min(least, Distance2(wall, p));
  return least;
}

void MoveRobot(const Maze& maze, double turn_target, double speed_target, Robot& robot) {
  robot.turn = Approach(robot.turn, turn_target);
  robot.speed = Approach(robot.speed, speed_target);
  const Direction ahead = DirectionOf(robot.heading);
  const MazePoint moved{robot.at.x + ahead.cosine * robot.speed,
                        robot.at.y + ahead.sine * robot.speed};
  robot.heading += robot.turn;
  if (robot.heading > 360) robot.heading -= 360;
  if (robot.heading < 0) robot.heading += 360;
  if (Clearance2(maze.walls, moved) >= kRobotRadius * kRobotRadius) robot.at = moved;
}

void SenseMaze(const Maze& maze, const Robot& robot, std::span<float> out) {
  const auto [c, s] = DirectionOf(robot.heading);
  const auto look = [&](double x, double y) { return LookAlong(maze.walls, robot.at, {x, y}); };
  // four lines through the robot hold all six rays
  const Ranges straight = look(c, s), across = look(-s, c);
  const Ranges left = look(kHalfRoot * (c + s), kHalfRoot * (s - c));
  const Ranges right = look(kHalfRoot * (c - s), kHalfRoot * (s + c));
  const double ranges[] = {across.behind, left.ahead,   straight.ahead,
                           right.ahead,   across.ahead, straight.behind};

  // the goal in the robot's own coordinates: x ahead, y at 90 degrees
  const MazePoint to = maze.goal - robot.at;
  const double x = c * to.x + s * to.y, y = c * to.y - s * to.x;
  const bool quarters[] = {x > 0 && -x <= y && y<x, y> 0 && -y < x && x <= y,
                           x < 0 && x < y && y <= -x, y < 0 && y <= x && x < -y};

  float* next = out.data();
  *next++ = 1;
  for (const double range : ranges) *next++ = static_cast<float>(range / kRange);
  for (const bool quarter : quarters) *next++ = quarter ? 1.0F : 0.0F;
}

double GoalDistance(const Maze& maze, const Robot& robot) {
  const MazePoint to = maze.goal - robot.at;
  return std::sqrt(Dot(to, to));
}

}  // namespace samara
