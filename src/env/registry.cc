#include "env/registry.h"

#include <fmt/format.h>

#include "core/config.h"
#include "env/classic/acrobot.h"
#include "env/classic/cartpole.h"
#include "env/classic/catch.h"
#include "env/classic/mountain_car.h"
#include "env/classic/pendulum.h"
#include "env/memory/recall.h"
#include "env/memory/tmaze.h"
#include "env/mujoco/environment.h"

namespace samara {
namespace {

// Tasks that are formulas: nothing to load.
struct OwnTask {
  std::string_view id;
  std::unique_ptr<Environment> (*make)(bool render);
};
constexpr OwnTask kOwnTasks[] = {
    {"CartPole-v1", MakeCartPole},
    {"Acrobot-v1", [](bool) { return MakeAcrobot(); }},
    {"MountainCar-v0", [](bool) { return MakeMountainCar(); }},
    {"Pendulum-v1", [](bool) { return MakePendulum(); }},
    {"Catch-v0", [](bool) { return MakeCatch(); }},
    {"Recall-v0", [](bool) { return MakeRecall("Recall-v0", {.delay = 10, .cues = 4}); }},
    {"RecallLong-v0", [](bool) { return MakeRecall("RecallLong-v0", {.delay = 40, .cues = 4}); }},
    {"TMaze-v0", [](bool) { return MakeTMaze(); }},
};

}  // namespace

Result<EnvironmentFactory> NativeEnvironment(std::string_view id, bool render) {
  for (const OwnTask& entry : kOwnTasks) {
    if (entry.id != id) continue;
    return EnvironmentFactory(
        [&entry, render]() -> Result<std::unique_ptr<Environment>> { return entry.make(render); });
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
  for (const OwnTask& entry : kOwnTasks) ids.emplace_back(entry.id);
  for (const MujocoTask& task : MujocoTasks()) ids.emplace_back(task.id);
  return ids;
}

}  // namespace samara
