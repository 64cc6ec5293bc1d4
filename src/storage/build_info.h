// Which samara this is: stored with every run and checkpoint.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

namespace samara {

struct BuildInfo {
  std::string version;       // of the project, "0.1.0"
  std::string git_revision;  // 12 digits, "-dirty" after local changes, "unknown" outside git
  std::string build_id;      // the linker's hash of this very program, "unknown" when it has none
  std::string compiler;      // "gcc 12.2.0 Release"
  std::string torch;         // the release that samara-torch is for, "2.13.0"; empty: there is none
  bool gpus;                 // whether there is code for GPUs
};
const BuildInfo& ThisBuild();

// Returns the members of run.json: format, build, config hash, seed, CPU, instruction set, wall
// time, command. `command` is shown to people and never run.
nlohmann::json MakeIdentity(const std::string& config_hash, int64_t seed,
                            std::span<const std::string> command);

}  // namespace samara
