// How far it is to a maze's goal along its corridors.
#pragma once

#include <cstdint>
#include <vector>

#include "env/maze/maze.h"

namespace samara {

// Lengths of shortest paths, in cells of one unit on a grid of kSide x kSide, from each cell to the
// goal's: breadth-first, a cell to its four neighbours, over cells in which the robot's centre can
// be. Cells from which no path leads to the goal count as farther than any other. Constant after
// construction.
class MazePaths {
 public:
  static constexpr int64_t kSide = 400;

  explicit MazePaths(const Maze& maze);
  // REQUIRES: nothing; a point outside the grid has no path.
  int64_t Length(MazePoint p) const;
  int64_t longest() const { return longest_; }          // of the cells with a path
  int64_t unreachable() const { return longest_ + 1; }  // what the others count as

 private:
  std::vector<int32_t> lengths_;  // [x][y]
  int64_t longest_ = 0;
};

}  // namespace samara
