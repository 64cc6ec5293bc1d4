#include "env/maze/path.h"

#include <cmath>

#include "core/check.h"

namespace samara {
namespace {

constexpr int32_t kWall = -2, kUnseen = -1;

// A centre of the robot anywhere in a cell keeps the middle of the cell at least this far from
// every wall.
const double kClearance = kRobotRadius - std::sqrt(0.5);

size_t IndexOf(int64_t x, int64_t y) { return static_cast<size_t>(x * MazePaths::kSide + y); }

bool OnGrid(int64_t x, int64_t y) {
  return x >= 0 && y >= 0 && x < MazePaths::kSide && y < MazePaths::kSide;
}

std::vector<int32_t> FreeCells(const Maze& maze) {
  std::vector<int32_t> cells(IndexOf(MazePaths::kSide, 0), kUnseen);
  for (int64_t x = 0; x < MazePaths::kSide; ++x) {
    for (int64_t y = 0; y < MazePaths::kSide; ++y) {
      const MazePoint middle{static_cast<double>(x) + 0.5, static_cast<double>(y) + 0.5};
      if (Clearance2(maze.walls, middle) < kClearance * kClearance) cells[IndexOf(x, y)] = kWall;
    }
  }
  return cells;
}

}  // namespace

MazePaths::MazePaths(const Maze& maze) : lengths_(FreeCells(maze)) {
  struct Cell {
    int64_t x, y;
  };
  const Cell goal{static_cast<int64_t>(maze.goal.x), static_cast<int64_t>(maze.goal.y)};
  CHECK(OnGrid(goal.x, goal.y) && lengths_[IndexOf(goal.x, goal.y)] == kUnseen)
      << "the goal is in a wall";
  std::vector<Cell> queue{goal};
  lengths_[IndexOf(goal.x, goal.y)] = 0;
  for (size_t next = 0; next < queue.size(); ++next) {
    const Cell cell = queue[next];
    longest_ = lengths_[IndexOf(cell.x, cell.y)];
    for (const auto& [dx, dy] : {Cell{1, 0}, Cell{-1, 0}, Cell{0, 1}, Cell{0, -1}}) {
      const Cell to{cell.x + dx, cell.y + dy};
      if (!OnGrid(to.x, to.y) || lengths_[IndexOf(to.x, to.y)] != kUnseen) continue;
      lengths_[IndexOf(to.x, to.y)] = static_cast<int32_t>(longest_ + 1);
      queue.push_back(to);
    }
  }
}

int64_t MazePaths::Length(MazePoint p) const {
  const double side = static_cast<double>(kSide);
  if (!(p.x >= 0 && p.y >= 0 && p.x < side && p.y < side)) return unreachable();
  const int32_t length = lengths_[IndexOf(static_cast<int64_t>(p.x), static_cast<int64_t>(p.y))];
  return length < 0 ? unreachable() : length;
}

}  // namespace samara
