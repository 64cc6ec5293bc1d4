// A task's ground plan: what a map of end points draws.
#pragma once

#include <optional>
#include <vector>

namespace samara {

struct EnvironmentMap {
  struct Point {
    double x = 0, y = 0;
  };
  struct Wall {
    Point from, to;
  };
  std::vector<Wall> walls;
  Point low, high;  // corners of what is worth drawing
  Point start;
  std::optional<Point> goal{};
  double goal_radius = 0;
  bool y_down = false;  // y grows downwards
};

}  // namespace samara
