// samara doctor: what this machine has, and what is missing for what.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/command.h"
#include "core/cpu.h"
#include "core/device.h"
#include "core/files.h"
#include "core/format.h"
#include "core/shell.h"
#include "core/venv.h"
#include "fleet/remote/remote.h"
#include "nn/device/accelerator.h"
#include "rl/algorithms/registry.h"
#include "storage/build_info.h"

namespace samara {
namespace {

struct Finding {
  std::string what, found;
  bool good = true;
  std::string remedy;  // what to do when it is not good
};

// First line of a program's output; empty when it failed. `command` is built from our own words
// only.
std::string Ask(const std::string& command) {
  std::FILE* pipe = ::popen((command + " 2>/dev/null").c_str(), "re");
  if (pipe == nullptr) return {};
  std::array<char, 256> line{};
  const bool read = std::fgets(line.data(), line.size(), pipe) != nullptr;
  std::string text = read ? line.data() : "";
  if (::pclose(pipe) != 0) return {};
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

Finding Package(const Path& python, const std::string& module, const std::string& use) {
  const std::string what = module + " (" + use + ")";
  const std::string version =
      Ask(ShellWord(python.string()) +
          " -P -c 'import importlib.metadata as m; print(m.version(\"" + module + "\"))'");
  if (!version.empty()) return {what, version, true, ""};
  // pip installs numpy with samara, and the others on demand
  if (!SitePackagesOfProgram().empty() && module != "numpy")
    return {what, "none: `pip install " + module + "` brings it", true, ""};
  return {what, "missing", false, HowToInstallPackages()};
}

// A build without torch is sound: it evolves, and learns from replays. One whose second program is
// broken or old is not.
Finding LearningAgents() {
  const std::string what = "learning agents", there = ProgramWithAgents();
  if (there.empty()) return {what, "in this program", true, ""};
  std::vector<std::string> native;
  for (const LearningAlgorithm& row : LearningAlgorithms())
    if (HasAgents(row.name)) native.push_back(row.name);
  std::error_code error;
  const bool built = std::filesystem::exists(there, error);
  if (!built || !CheckInstalledTorch().ok())
    return {
        what,
        fmt::format("of {} alone: the others need {}", fmt::join(native, ", "),
                    built ? "`pip install torch==" + ThisBuild().torch + "`" : "-DSAMARA_TORCH=ON"),
        true, ""};
  const std::string version = Ask(ShellWord(there) + " --version");
  if (version.empty())
    return {what, there + " does not start", false, "its torch is gone or another: build again"};
  if (version != VersionText())
    return {what, there + " is " + version, false, "it is not of this build: build again"};
  return {what, "yes: " + there, true, ""};
}

// GPUs, and whether this build can use them. None, or a build for CPUs, is sound.
std::vector<Finding> Gpus() {
  const GpuList found = FindGpus();
  const bool built = ThisBuild().gpus;
  if (found.gpus.empty())
    return {
        {"GPU", "none: " + found.why_none + (built ? "" : "; this build is for CPUs"), true, ""}};
  std::vector<Finding> findings;
  for (const Gpu& gpu : found.gpus)
    findings.push_back(
        {fmt::format("GPU cuda:{}", gpu.ordinal),
         fmt::format("{}, {:.0f} GB, compute capability {}.{}{}", gpu.name,
                     static_cast<double>(gpu.memory_bytes) / 1e9, gpu.capability / 10,
                     gpu.capability % 10,
                     gpu.capability < kCapabilityMin ? "; too old: 7.5 is the oldest" : ""),
         true, ""});
  findings.push_back({"learners on GPUs",
                      built ? "torch's code is in this build"
                            : "none: this build's torch is for CPUs (SAMARA_CUDA=1)",
                      true, ""});
  findings.push_back({"populations on GPUs",
                      Accelerator::BuiltForGpus() ? "kernels are in this build, for 8.0 and newer"
                                                  : "none: this build has no CUDA kernels "
                                                    "(SAMARA_CUDA=1)",
                      true, ""});
  return findings;
}

// Remote actors: which gRPC, and what to know of an old one.
Finding RemoteActors() {
  constexpr int kCured[] = {1, 60};  // bounds what streams that are reset at once cost
  const std::string what = "remote actors", version = GrpcVersion();
  if (version.empty())
    return {what, "none: " + HowToBuildWith("libgrpc++-dev", "SAMARA_GRPC"), true, ""};
  int release[2] = {};
  std::sscanf(version.c_str(), "%d.%d", &release[0], &release[1]);
  const bool old = std::lexicographical_compare(std::begin(release), std::end(release),
                                                std::begin(kCured), std::end(kCured));
  return {what,
          "gRPC " + version +
              (old ? ", which floods of HTTP/2 frames exhaust: let no stranger reach it "
                     "(doc/remote_actors.md)"
                   : ""),
          true, ""};
}

std::vector<Finding> Examine() {
  std::vector<Finding> findings;
  findings.push_back(
      {"samara", VersionText().substr(std::string_view("samara ").size()), true, ""});
  findings.push_back(
      {"CPU",
       fmt::format("{}, {}, kernels {}", CpuName(), CountText(Cores(), "core"), Name(ActiveIsa())),
       true, ""});
  for (Finding& gpu : Gpus()) findings.push_back(std::move(gpu));
  findings.push_back(LearningAgents());
  findings.push_back(RemoteActors());
  const auto free = FreeSpace(Path("."));
  if (free.ok()) {
    findings.push_back({"disk here",
                        fmt::format("{:.1f} GB free", static_cast<double>(*free) / 1e9),
                        *free > (1U << 30), "free at least 1 GB"});
  }
  const auto venv = FindVenv();
  const bool installed = !SitePackagesOfProgram().empty();
  findings.push_back({installed ? "Python environment" : ".venv",
                      venv.ok() ? venv->string() : venv.status().message(), venv.ok(),
                      HowToInstallPackages()});
  if (!venv.ok()) return findings;
  const Path python = *venv / "bin" / "python";
  const std::string version = Ask(ShellWord(python.string()) + " --version");
  findings.push_back({"Python", version.empty() ? "does not answer" : version, !version.empty(),
                      "remove .venv; " + HowToInstallPackages()});
  for (const auto& [module, use] :
       std::vector<std::pair<std::string, std::string>>{{"ale-py", "Atari"},
                                                        {"gymnasium", "Gymnasium environments"},
                                                        {"mujoco", "native MuJoCo tasks"},
                                                        {"numpy", "actors"},
                                                        {"torch", "torch modules and tests"}}) {
    findings.push_back(Package(python, module, use));
  }
  const std::string roms = Ask(ShellWord(python.string()) +
                               " -P -c 'import ale_py.roms as r; print(len(r.get_all_rom_ids()))'");
  findings.push_back({"Atari ROMs", roms.empty() ? "none" : roms, !roms.empty() || installed,
                      HowToInstallPackages()});
  return findings;
}

Status RunDoctor(bool json, Invocation& invocation) {
  const std::vector<Finding> findings = Examine();
  bool good = true;
  nlohmann::json list = nlohmann::json::array();
  for (const Finding& f : findings) {
    good &= f.good;
    if (json)
      list.push_back({{"what", f.what},
                      {"found", f.found},
                      {"good", f.good},
                      {"remedy", f.good ? "" : f.remedy}});
    else
      std::printf(
          "%-4s %-36s %s%s\n", f.good ? "ok" : "BAD", f.what.c_str(), f.found.c_str(),
          f.good || f.found.find(f.remedy) != f.found.npos ? "" : (": " + f.remedy).c_str());
  }
  const nlohmann::json object = {{"good", good}, {"findings", list}};
  if (good && json) PrintJson(object);
  if (good) return Status::Ok();
  invocation.found = object;
  return {Code::kNoInput, "something is missing: see the lines marked BAD"};
}

}  // namespace

void AddDoctor(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      app.add_subcommand("doctor", "check what this machine has, and what is missing");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "last line: one JSON object");
  command->callback([=, &invocation] {
    invocation.run = [=, &invocation] { return RunDoctor(*json, invocation); };
  });
}

}  // namespace samara
