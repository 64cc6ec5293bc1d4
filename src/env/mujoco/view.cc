#include "env/mujoco/view.h"

#include <algorithm>
#include <cmath>

namespace samara {
namespace {

constexpr Colour kWall{90, 90, 90}, kLine{220, 220, 220}, kBody{236, 176, 116},
    kLimb{150, 156, 220};
constexpr double kMargin = 2;  // metres around walls, in units of their height

// A window on the world: metres right and up become pixels.
struct Window {
  bool above;        // up is y, else z
  double left, low;  // its corner in metres
  double per_metre;  // pixels
  double height;     // pixels
  Point At(const mjtNum* p) const { return At(p[0], above ? p[1] : p[2]); }
  Point At(double right, double up) const {
    return {(right - left) * per_metre, height - (up - low) * per_metre};
  }
};

Window WindowOnWalls(const MujocoTask& task, const mjtNum* body, const Picture& picture) {
  double left = 0, right = 0, low = 0;
  for (const MujocoWall& wall : task.walls) {
    left = std::min(left, wall.x - wall.half_x);
    right = std::max(right, wall.x + wall.half_x);
    low = std::min(low, wall.y - wall.half_y);
  }
  const double margin = kMargin * kMujocoWallHeight;
  Window window{.above = true,
                .left = left - margin,
                .low = 0,
                .per_metre = picture.width() / (right - left + 2 * margin),
                .height = picture.height()};
  const double width = picture.width() / window.per_metre,
               height = picture.height() / window.per_metre;
  const double edge = width / 20;
  window.left = std::clamp(window.left, body[0] + edge - width, body[0] - edge);
  window.low = std::clamp(-height / 2, body[1] + edge - height, body[1] - edge);
  return window;
}

Window WindowOnBody(const MujocoTask& task, const mjModel& model, const mjtNum* body,
                    const Picture& picture) {
  // most of the extent is the room around the body
  const double width = 0.7 * model.stat.extent;
  Window window{.above = task.above,
                .left = body[0] - width / 2,
                .low = 0,
                .per_metre = picture.width() / width,
                .height = picture.height()};
  const double height = picture.height() / window.per_metre;
  window.low = task.above ? body[1] - height / 2 : std::min(-0.15 * height, body[2] - height / 2);
  return window;
}

// Lines a metre apart, the ground among them: without them nothing seems to move.
void DrawGround(const Window& window, Picture& picture) {
  const double width = picture.width() / window.per_metre,
               height = picture.height() / window.per_metre;
  const double top = window.above ? window.low + height : 0;
  for (double x = std::ceil(window.left); x < window.left + width; ++x)
    picture.Line(window.At(x, window.low), window.At(x, top), 1, kLine);
  if (!window.above)
    return picture.Line(window.At(window.left, 0), window.At(window.left + width, 0), 2, kInk);
  for (double y = std::ceil(window.low); y < window.low + height; ++y)
    picture.Line(window.At(window.left, y), window.At(window.left + width, y), 1, kLine);
}

// Spheres, capsules and cylinders, `extra` pixels thicker.
void DrawRoundParts(const Window& window, const mjModel& model, const mjData& data, double extra,
                    const Colour* colour, Picture& picture) {
  for (int geom = 0; geom < model.ngeom; ++geom) {
    const int type = model.geom_type[geom];
    const bool long_one = type == mjGEOM_CAPSULE || type == mjGEOM_CYLINDER;
    if (!long_one && type != mjGEOM_SPHERE) continue;
    const mjtNum* size = model.geom_size + 3 * geom;
    const mjtNum* at = data.geom_xpos + 3 * geom;
    const mjtNum* turned = data.geom_xmat + 9 * geom;
    mjtNum from[3], to[3];
    for (int axis = 0; axis < 3; ++axis) {
      // the axis of a capsule is its z
      const mjtNum half = long_one ? size[1] * turned[3 * axis + 2] : 0;
      from[axis] = at[axis] - half, to[axis] = at[axis] + half;
    }
    const Colour& own = model.geom_bodyid[geom] == 1 ? kBody : kLimb;
    picture.Line(window.At(from), window.At(to),
                 std::max(2 * size[0] * window.per_metre, 2.0) + extra,
                 colour != nullptr ? *colour : own);
  }
}

void DrawBoxes(const Window& window, const mjModel& model, const mjData& data, Picture& picture) {
  for (int geom = 0; geom < model.ngeom; ++geom) {
    if (model.geom_type[geom] != mjGEOM_BOX) continue;
    const mjtNum* at = data.geom_xpos + 3 * geom;
    const mjtNum* size = model.geom_size + 3 * geom;
    const int up = window.above ? 1 : 2;
    picture.Box(window.At(at[0] - size[0], at[up] + size[up]),
                window.At(at[0] + size[0], at[up] - size[up]), kWall);
  }
}

}  // namespace

void DrawMujoco(const MujocoTask& task, const mjModel& model, const mjData& data,
                Picture& picture) {
  const mjtNum* body = data.xpos + 3;  // body 0 is the world
  const Window window = task.walls.empty() ? WindowOnBody(task, model, body, picture)
                                           : WindowOnWalls(task, body, picture);
  picture.Fill(kPaper);
  DrawGround(window, picture);
  DrawBoxes(window, model, data, picture);
  // outlines first, so that crossing limbs keep theirs
  DrawRoundParts(window, model, data, 2, &kInk, picture);
  DrawRoundParts(window, model, data, 0, nullptr, picture);
}

}  // namespace samara
