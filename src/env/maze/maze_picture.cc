#include "env/maze/maze_picture.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/math.h"

namespace samara {
namespace {

constexpr double kUnitsPerPixel = kMazeExtent / static_cast<double>(kMazeView);
constexpr double kHalfWall = 1.8;  // more than half a pixel's diagonal: walls have no gaps
constexpr double kMarkRadius = 3, kMarkAhead = 5;
constexpr std::byte kFloorGray{0}, kGoalGray{64}, kWallGray{128}, kRobotGray{192}, kMarkGray{255};
constexpr Colour kFloor{255, 255, 255}, kGoal{150, 205, 150}, kWallColour{30, 30, 30},
    kRobot{80, 80, 255}, kMark{230, 40, 40};
constexpr double kPixelsPerUnit = 2;

MazePoint Middle(int64_t row, int64_t column) {
  return {(static_cast<double>(column) + 0.5) * kUnitsPerPixel,
          (static_cast<double>(row) + 0.5) * kUnitsPerPixel};
}

bool InDisc(MazePoint centre, double radius, MazePoint p) {
  const double x = p.x - centre.x, y = p.y - centre.y;
  return x * x + y * y <= radius * radius;
}

MazePoint MarkOf(const Robot& robot) {
  const double radians = robot.heading * (3.141592653589793 / 180);
  return {robot.at.x + kMarkAhead * Cos(radians), robot.at.y + kMarkAhead * Sin(radians)};
}

// The pixels of a coordinate within `radius`, clipped to the view.
std::pair<int64_t, int64_t> Pixels(double centre, double radius) {
  const double edge = static_cast<double>(kMazeView);
  return {static_cast<int64_t>(std::clamp((centre - radius) / kUnitsPerPixel, 0.0, edge)),
          static_cast<int64_t>(std::clamp((centre + radius) / kUnitsPerPixel + 1, 0.0, edge))};
}

void DrawDisc(MazePoint centre, double radius, std::byte gray, std::span<std::byte> pixels) {
  const auto [top, bottom] = Pixels(centre.y, radius);
  const auto [left, right] = Pixels(centre.x, radius);
  for (int64_t row = top; row < bottom; ++row)
    for (int64_t column = left; column < right; ++column)
      if (InDisc(centre, radius, Middle(row, column)))
        pixels[static_cast<size_t>(row * kMazeView + column)] = gray;
}

}  // namespace

MazeView::MazeView(const Maze& maze) {
  ground_.fill(kFloorGray);
  DrawDisc(maze.goal, kGoalRadius, kGoalGray, ground_);
  for (int64_t row = 0; row < kMazeView; ++row)
    for (int64_t column = 0; column < kMazeView; ++column)
      if (Clearance2(maze.walls, Middle(row, column)) <= kHalfWall * kHalfWall)
        ground_[static_cast<size_t>(row * kMazeView + column)] = kWallGray;
}

void MazeView::Draw(const Robot& robot, std::span<std::byte> pixels) const {
  DCHECK(pixels.size() == ground_.size()) << pixels.size();
  std::ranges::copy(ground_, pixels.begin());
  DrawDisc(robot.at, kRobotRadius, kRobotGray, pixels);
  DrawDisc(MarkOf(robot), kMarkRadius, kMarkGray, pixels);
}

void DrawMaze(const Maze& maze, const Robot& robot, Picture& picture) {
  const auto at = [](MazePoint p) { return Point{p.x * kPixelsPerUnit, p.y * kPixelsPerUnit}; };
  const auto disc = [&](MazePoint centre, double radius, Colour colour) {
    picture.Line(at(centre), at(centre), 2 * radius * kPixelsPerUnit, colour);
  };
  picture.Fill(kFloor);
  disc(maze.goal, kGoalRadius, kGoal);
  for (const MazeWall& wall : maze.walls) picture.Line(at(wall.a), at(wall.b), 4, kWallColour);
  disc(robot.at, kRobotRadius, kRobot);
  picture.Line(at(robot.at), at(MarkOf(robot)), 5, kMark);
}

}  // namespace samara
