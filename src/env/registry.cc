#include "env/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/config.h"
#include "env/classic/acrobot.h"
#include "env/classic/cartpole.h"
#include "env/classic/catch.h"
#include "env/classic/mountain_car.h"
#include "env/classic/pendulum.h"
#include "env/maze/maze_environment.h"
#include "env/memory/recall.h"
#include "env/memory/tmaze.h"
#include "env/mujoco/environment.h"

namespace samara {
namespace {

// Tasks that are formulas: nothing to load.
struct NativeTask {
  std::string id;
  std::function<std::unique_ptr<Environment>(bool render)> make;
};

NativeTask Maze(MazeOptions options) {
  return {options.id, [options](bool render) { return MakeMaze(options, render); }};
}

std::vector<NativeTask>& Tasks() {
  static std::vector<NativeTask> tasks = {
      {"CartPole-v1", MakeCartPole},
      {"Acrobot-v1", [](bool) { return MakeAcrobot(); }},
      {"MountainCar-v0", [](bool) { return MakeMountainCar(); }},
      {"Pendulum-v1", [](bool) { return MakePendulum(); }},
      {"Catch-v0", [](bool) { return MakeCatch(); }},
      {"Recall-v0", [](bool) { return MakeRecall("Recall-v0", {.delay = 10, .cues = 4}); }},
      {"RecallLong-v0", [](bool) { return MakeRecall("RecallLong-v0", {.delay = 40, .cues = 4}); }},
      {"TMaze-v0", [](bool) { return MakeTMaze(); }},
      Maze({.id = "HardMaze"}),
      Maze({.id = "HardMazeSigmoid", .outputs = MazeOutputs::kSigmoid}),
      Maze({.id = "HardMazeDiscrete", .outputs = MazeOutputs::kDiscrete}),
      Maze({.id = "BreadcrumbMaze",
            .outputs = MazeOutputs::kSigmoid,
            .action_repeat = 3,
            .path_reward = true}),
      Maze({.id = "ImageMaze", .picture = true}),
      Maze({.id = "ImageMazeDiscrete", .outputs = MazeOutputs::kDiscrete, .picture = true}),
  };
  return tasks;
}

}  // namespace

Result<EnvironmentFactory> NativeEnvironment(std::string_view id, bool render) {
  for (const NativeTask& task : Tasks()) {
    if (task.id != id) continue;
    return EnvironmentFactory([make = task.make, render]() -> Result<std::unique_ptr<Environment>> {
      return make(render);
    });
  }
  for (const MujocoTask& task : MujocoTasks())
    if (task.id == id) return MujocoEnvironment(task);
  return Status(Code::kConfig,
                fmt::format("native environment '{}' is unknown, the nearest is '{}'; `samara list "
                            "envs` names them all",
                            id, Nearest(id, NativeEnvironmentIds())));
}

std::vector<std::string> NativeEnvironmentIds() {
  std::vector<std::string> ids;
  for (const NativeTask& task : Tasks()) ids.push_back(task.id);
  for (const MujocoTask& task : MujocoTasks()) ids.emplace_back(task.id);
  return ids;
}

void RegisterEnvironment(std::string id,
                         std::function<std::unique_ptr<Environment>(bool render)> make) {
  const std::vector<std::string> ids = NativeEnvironmentIds();
  CHECK(std::find(ids.begin(), ids.end(), id) == ids.end()) << id << " is registered twice";
  Tasks().push_back({std::move(id), std::move(make)});
}

}  // namespace samara
