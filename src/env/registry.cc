#include "env/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/log.h"
#include "core/parse_number.h"
#include "core/suggestion.h"
#include "env/classic/acrobot.h"
#include "env/classic/cartpole.h"
#include "env/classic/catch.h"
#include "env/classic/mountain_car.h"
#include "env/classic/pendulum.h"
#include "env/goal/bit_flip.h"
#include "env/goal/point_reach.h"
#include "env/maze/maze.h"
#include "env/maze/maze_environment.h"
#include "env/memory/recall.h"
#include "env/memory/tmaze.h"
#include "env/mujoco/environment.h"
#include "env/pixel_observations.h"
#include "env/toy/parity.h"
#include "env/toy/two_weights.h"

namespace samara {
namespace {

// Tasks that are formulas: nothing to load.
struct NativeTask {
  std::string id;
  std::function<std::unique_ptr<Environment>(bool render)> make;
  EnvironmentMap (*map)() = nullptr;  // null: it has none
  bool shows_hidden = false;          // its pictures show what is to be remembered
};

EnvironmentMap MapOfHardMaze() {
  const auto point = [](MazePoint p) { return EnvironmentMap::Point{p.x, p.y}; };
  const Maze& maze = HardMaze();
  EnvironmentMap map{.walls = {},
                     .low = {0, 0},
                     .high = {200, 206},
                     .start = point(maze.start),
                     .goal = point(maze.goal),
                     .goal_radius = kGoalRadius,
                     .y_down = true};
  for (const MazeWall& wall : maze.walls) map.walls.push_back({point(wall.a), point(wall.b)});
  return map;
}

// Walls as their outlines, and some room around them and the start.
EnvironmentMap MapOfWalls(std::span<const MujocoWall> walls) {
  EnvironmentMap map;
  for (const MujocoWall& wall : walls) {
    const EnvironmentMap::Point low{wall.x - wall.half_x, wall.y - wall.half_y},
        high{wall.x + wall.half_x, wall.y + wall.half_y};
    const EnvironmentMap::Point corners[] = {low, {high.x, low.y}, high, {low.x, high.y}, low};
    for (size_t i = 0; i < 4; ++i) map.walls.push_back({corners[i], corners[i + 1]});
    map.low = {std::min(map.low.x, low.x), std::min(map.low.y, low.y)};
    map.high = {std::max(map.high.x, high.x), std::max(map.high.y, high.y)};
  }
  const double room = 0.25 * (map.high.x - map.low.x);
  map.low = {map.low.x - room, map.low.y - room};
  map.high = {map.high.x + room, map.high.y + room};
  return map;
}

NativeTask MazeTask(const MazeOptions& options) {
  return {options.id, [options](bool render) { return MakeMaze(options, render); }, MapOfHardMaze};
}

NativeTask BitFlipTask(const char* id, int64_t bits) {
  return {id, [id, bits](bool render) { return MakeBitFlip(id, bits, render); }};
}

NativeTask RecallTask(const char* id, const RecallOptions& options) {
  return {id, [id, options](bool render) { return MakeRecall(id, options, render); }, nullptr,
          /*shows_hidden=*/true};
}

NativeTask TwoWeightsOf(const char* id, TwoWeightsTask task) {
  return {id, [task](bool render) { return MakeTwoWeights(task, render); }};
}

std::vector<NativeTask>& Tasks() {
  static std::vector<NativeTask> tasks = {
      {"CartPole-v1", MakeCartPole},
      {"Acrobot-v1", MakeAcrobot},
      {"MountainCar-v0", MakeMountainCar},
      {"Pendulum-v1", MakePendulum},
      {"Catch-v0", MakeCatch},
      RecallTask("Recall-v0", {.delay = 10, .cues = 4}),
      RecallTask("RecallLong-v0", {.delay = 40, .cues = 4}),
      {"TMaze-v0", MakeTMaze, nullptr, /*shows_hidden=*/true},
      MazeTask({.id = "HardMaze"}),
      MazeTask({.id = "HardMazeSigmoid", .outputs = MazeOutputs::kUnit}),
      MazeTask({.id = "HardMazeDiscrete", .outputs = MazeOutputs::kDiscrete}),
      MazeTask({.id = "BreadcrumbMaze",
                .outputs = MazeOutputs::kUnit,
                .action_repeat = 3,
                .path_reward = true}),
      MazeTask({.id = "ImageMaze", .picture = true}),
      MazeTask({.id = "ImageMazeDiscrete", .outputs = MazeOutputs::kDiscrete, .picture = true}),
      BitFlipTask("BitFlip8-v0", 8),
      BitFlipTask("BitFlip15-v0", 15),
      BitFlipTask("BitFlip20-v0", 20),
      BitFlipTask("BitFlip40-v0", 40),
      {"PointReach-v0", MakePointReach},
      {"Parity-v0", MakeParity, nullptr, /*shows_hidden=*/true},
      TwoWeightsOf("ToyEasy-v0", TwoWeightsTask::kEasy),
      TwoWeightsOf("ToyMedium-v0", TwoWeightsTask::kMedium),
      TwoWeightsOf("ToyWashout-v0", TwoWeightsTask::kWashout),
  };
  return tasks;
}

constexpr std::string_view kPixels = "?pixels=";

Result<EnvironmentFactory> FactoryOf(std::string_view id, bool render) {
  for (const NativeTask& task : Tasks()) {
    if (task.id != id) continue;
    return EnvironmentFactory([make = task.make, render]() -> Result<std::unique_ptr<Environment>> {
      return make(render);
    });
  }
  for (const MujocoTask& task : MujocoTasks())
    if (task.id == id) return MujocoEnvironment(task, render);
  return Status(Code::kConfig,
                fmt::format("native environment '{}' is unknown, the nearest is '{}'; `samara list "
                            "envs` names them all",
                            id, Nearest(id, NativeEnvironmentIds())));
}

// The number behind a task's "?pixels="; 0: there is none.
Result<int64_t> PixelsOf(std::string_view id) {
  const std::string_view option = id.substr(NativeTaskOf(id).size());
  if (option.empty()) return 0;
  const auto pixels = ParseNumber<int64_t>(option.substr(kPixels.size()));
  if (!pixels || *pixels < kPixelsMin || *pixels > kPixelsMax)
    return Status(Code::kConfig,
                  fmt::format("{}: expected pixels={} to {}, such as {}{}42", Shown(id), kPixelsMin,
                              kPixelsMax, NativeTaskOf(id), kPixels));
  return *pixels;
}

}  // namespace

std::string_view NativeTaskOf(std::string_view id) { return id.substr(0, id.find(kPixels)); }

Result<EnvironmentFactory> NativeEnvironment(std::string_view id, bool render) {
  ASSIGN_OR_RETURN(const int64_t pixels, PixelsOf(id));
  const std::string_view task = NativeTaskOf(id);
  ASSIGN_OR_RETURN(EnvironmentFactory inner, FactoryOf(task, render || pixels > 0));
  if (pixels == 0) return inner;
  if (std::ranges::any_of(Tasks(),
                          [&](const NativeTask& t) { return t.id == task && t.shows_hidden; }))
    return Status(Code::kConfig, fmt::format("{}: its picture shows what has to be remembered; "
                                             "expected the id without {}",
                                             id, kPixels));
  return EnvironmentFactory(
      [inner = std::move(inner), pixels, render]() -> Result<std::unique_ptr<Environment>> {
        ASSIGN_OR_RETURN(std::unique_ptr<Environment> made, inner());
        if (made->spec().render_height == 0)
          return Status(Code::kConfig, made->spec().id +
                                           " draws no pictures: expected the id "
                                           "without " +
                                           std::string(kPixels));
        return MakePixelObservations(std::move(made), pixels, render);
      });
}

std::vector<std::string> NativeEnvironmentIds() {
  std::vector<std::string> ids;
  for (const NativeTask& task : Tasks()) ids.push_back(task.id);
  for (const MujocoTask& task : MujocoTasks()) ids.emplace_back(task.id);
  return ids;
}

std::optional<EnvironmentSpec> NativeSpec(std::string_view id, bool render) {
  const Result<int64_t> pixels = PixelsOf(id);
  for (const NativeTask& task : Tasks())
    if (task.id == NativeTaskOf(id) && pixels.ok())
      return *pixels > 0 ? PixelSpec(task.make(/*render=*/true)->spec(), *pixels, render)
                         : task.make(render)->spec();
  return std::nullopt;
}

std::optional<EnvironmentMap> NativeMap(std::string_view id) {
  id = NativeTaskOf(id);
  for (const NativeTask& task : Tasks())
    if (task.id == id && task.map != nullptr) return task.map();
  for (const MujocoTask& task : MujocoTasks())
    if (task.id == id && !task.walls.empty()) return MapOfWalls(task.walls);
  return std::nullopt;
}

void RegisterEnvironment(std::string id,
                         std::function<std::unique_ptr<Environment>(bool render)> make) {
  const std::vector<std::string> ids = NativeEnvironmentIds();
  CHECK(std::find(ids.begin(), ids.end(), id) == ids.end()) << id << " is registered twice";
  Tasks().push_back({std::move(id), std::move(make)});
}

}  // namespace samara
