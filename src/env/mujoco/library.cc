#include "env/mujoco/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <mutex>

#include "core/files.h"
#include "core/log.h"
#include "core/sha256.h"
#include "core/venv.h"

namespace samara {
namespace {

Result<Path> FindLibrary() {
  ASSIGN_OR_RETURN(const Path package, FindVenvPackage("mujoco"));
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(package, failed))
    if (entry.path().filename().string().starts_with("libmujoco.so")) return entry.path();
  return Status(Code::kNoInput,
                fmt::format("no libmujoco.so in {}: {}", package.string(), HowToInstallPackages()));
}

// Without these MuJoCo prints to the terminal, writes MUJOCO_LOG.TXT and ends the process.
void OnWarning(const char* message) { Log(LogLevel::kDebug, fmt::format("MuJoCo: {}", message)); }
void OnError(const char* message) { CHECK(false) << "MuJoCo: " << message; }

// Looks up one entry; remembers the first name that is missing.
template <typename Function>
void Bind(void* handle, const char* name, Function& entry, std::string& missing) {
  void* found = dlsym(handle, name);
  if (found == nullptr && missing.empty()) missing = name;
  entry = reinterpret_cast<Function>(found);
}

void SetHandlers(void* handle) {
  using Handler = void (*)(const char*);
  if (auto** warning = static_cast<Handler*>(dlsym(handle, "mju_user_warning")))
    *warning = OnWarning;
  if (auto** error = static_cast<Handler*>(dlsym(handle, "mju_user_error"))) *error = OnError;
}

Result<MujocoLibrary> OpenLibrary() {
  ASSIGN_OR_RETURN(const Path path, FindLibrary());
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return Status(Code::kNoInput, fmt::format("{} does not load ({}): {}", path.string(), dlerror(),
                                              HowToInstallPackages()));
  MujocoLibrary l{};
  std::string missing;
  Bind(handle, "mj_version", l.version, missing);
  Bind(handle, "mj_versionString", l.version_string, missing);
  Bind(handle, "mj_parseXMLString", l.parse, missing);
  Bind(handle, "mj_compile", l.compile, missing);
  Bind(handle, "mjs_getError", l.compile_error, missing);
  Bind(handle, "mj_deleteSpec", l.delete_spec, missing);
  Bind(handle, "mj_deleteModel", l.delete_model, missing);
  Bind(handle, "mj_makeData", l.make_data, missing);
  Bind(handle, "mj_deleteData", l.delete_data, missing);
  Bind(handle, "mj_resetData", l.reset_data, missing);
  Bind(handle, "mj_forward", l.forward, missing);
  Bind(handle, "mj_step", l.step, missing);
  Bind(handle, "mj_rnePostConstraint", l.forces_after_constraints, missing);
  Bind(handle, "mj_stateSize", l.state_size, missing);
  Bind(handle, "mj_getState", l.get_state, missing);
  Bind(handle, "mj_setState", l.set_state, missing);
  // the layout of mjModel and mjData belongs to one version
  if (!missing.empty() || l.version() != mjVERSION_HEADER)
    return Status(Code::kNoInput,
                  fmt::format("{} is another version than samara was built for ({}): run `make "
                              "setup`, then build again",
                              path.string(), mjVERSION_HEADER));
  static std::once_flag once;
  std::call_once(once, SetHandlers, handle);
  return l;
}

Result<std::string> ReadTask(std::string_view xml, std::string_view sha256) {
  ASSIGN_OR_RETURN(const Path gymnasium, FindVenvPackage("gymnasium"));
  const Path path = gymnasium / "envs" / "mujoco" / "assets" / xml;
  ASSIGN_OR_RETURN(std::string text, ReadFile(path, size_t{1} << 20));
  if (const std::string found = Sha256Hex(text); found != sha256)
    return Status(Code::kBadData,
                  fmt::format("{}: SHA-256 {}, expected {}: scores of another model are not "
                              "comparable; the Gymnasium of requirements.txt has the right one: {}",
                              path.string(), found.substr(0, 12), sha256.substr(0, 12),
                              HowToInstallPackages()));
  return text;
}

// XML of walls, after the last geometry of the world: every body collides with them.
std::string DescribeWalls(std::span<const MujocoWall> walls) {
  std::string text;
  for (const MujocoWall& wall : walls)
    text += fmt::format(
        "<geom type='box' pos='{} {} 0' size='{} {} {}' contype='1' conaffinity='1' condim='3' "
        "friction='1 .1 .1'/>\n",
        wall.x, wall.y, wall.half_x, wall.half_y, kMujocoWallHeight);
  return text;
}

// Among each other they collide with nothing still: their conaffinity stays 0.
Status CollideWithWalls(std::string& task) {
  constexpr std::string_view kNothing = R"(conaffinity="0" condim="1" contype="0")",
                             kWalls = R"(conaffinity="0" condim="1" contype="1")";
  const size_t at = task.find(kNothing);
  if (at == std::string::npos) return {Code::kBadData, "no default geometry without collisions"};
  task.replace(at, kNothing.size(), kWalls);
  return Status::Ok();
}

Status InsertWalls(const std::string& walls, std::string& task) {
  const size_t end = task.rfind("</worldbody>");
  if (end == std::string::npos) return {Code::kBadData, "no </worldbody>"};
  task.insert(end, walls);
  return Status::Ok();
}

}  // namespace

Result<std::shared_ptr<const MujocoModel>> LoadMujocoModel(const MujocoTask& task) {
  ASSIGN_OR_RETURN(const MujocoLibrary library, OpenLibrary());
  ASSIGN_OR_RETURN(std::string text, ReadTask(task.xml, task.sha256));
  const std::string walls = DescribeWalls(task.walls);
  if (!walls.empty()) RETURN_IF_ERROR(InsertWalls(walls, text));
  if (task.solid) RETURN_IF_ERROR(CollideWithWalls(text));
  char error[512] = "";
  const std::unique_ptr<mjSpec, decltype(library.delete_spec)> spec(
      library.parse(text.c_str(), nullptr, error, sizeof error), library.delete_spec);
  if (spec == nullptr) return Status(Code::kBadData, fmt::format("{}: {}", task.xml, error));
  mjModel* model = library.compile(spec.get(), nullptr);
  if (model == nullptr)
    return Status(Code::kBadData,
                  fmt::format("{}: {}", task.xml, library.compile_error(spec.get())));
  std::string version = fmt::format("mujoco {}, {} {}", library.version_string(), task.xml,
                                    task.sha256.substr(0, 12));
  if (!walls.empty()) version += ", walls " + Sha256Hex(walls).substr(0, 12);
  if (task.solid) version += ", solid";
  if (task.implicit) {
    model->opt.integrator = mjINT_IMPLICITFAST;
    // steps: runs with shorter episodes are not continued
    version += fmt::format(", {} steps, implicitfast", task.steps_max);
  }
  return std::shared_ptr<const MujocoModel>(
      new MujocoModel{library, {model, library.delete_model}, std::move(version)});
}

}  // namespace samara
