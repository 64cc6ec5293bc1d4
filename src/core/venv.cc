// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/venv.h"

#include <fmt/format.h>

#include <cstdlib>

namespace samara {
namespace {

bool IsVenv(const Path& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder / "bin" / "python", ignored);
}

// The folder above that of the running program: a source tree (build/samara), an unpacked archive
// (libexec/samara), or the Python package that pip installed (bin/samara).
Path Root() {
  std::error_code failed;
  const Path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  return program.parent_path().parent_path();
}

// The environment into whose lib/python3.11/site-packages pip installed the running program; empty
// where it lies elsewhere.
Path EnvironmentOfProgram() {
  const Path site = SitePackagesOfProgram();
  return site.filename() == "site-packages" ? site.parent_path().parent_path().parent_path()
                                            : Path();
}

}  // namespace

Path SitePackagesOfProgram() {
  std::error_code ignored;
  const bool installed = std::filesystem::exists(Root() / "__init__.py", ignored);
  return installed ? Root().parent_path() : Path();
}

std::string HowToInstallPackages() {
  std::error_code ignored;
  if (std::filesystem::exists(Root() / "scripts/setup", ignored)) return "run `make setup`";
  if (std::filesystem::exists(Root() / "requirements.txt", ignored))
    return fmt::format("{} says how to install it", (Root() / "README").string());
  return "install it with pip";
}

std::string HowToBuildWith(std::string_view packages, std::string_view setting) {
  if (SitePackagesOfProgram().empty())
    return fmt::format("install {}, remove build/ and build again", packages);
  return fmt::format("build the wheel with -C cmake.define.{}=ON (doc/installing.md)", setting);
}

Result<Path> FindVenv() {
  if (const char* named = std::getenv("SAMARA_VENV"); named != nullptr && *named != '\0') {
    if (IsVenv(named)) return Path(named);
    return Status(Code::kNoInput,
                  fmt::format("SAMARA_VENV={}: expected a Python environment with bin/python; {} "
                              "and unset the variable, or correct it",
                              named, HowToInstallPackages()));
  }
  const Path around = EnvironmentOfProgram();
  const Path place = around.empty() ? Root() / ".venv" : around;
  if (IsVenv(place)) return place;
  if (const char* active = std::getenv("VIRTUAL_ENV"); active != nullptr && IsVenv(active))
    return Path(active);
  return Status(Code::kNoInput, fmt::format("no {}, and no environment is activated: {}, or set "
                                            "SAMARA_VENV to an environment that has the packages",
                                            place.string(), HowToInstallPackages()));
}

Result<Path> FindVenvPackage(std::string_view package) {
  ASSIGN_OR_RETURN(const Path venv, FindVenv());
  std::error_code failed;
  // lib/python3.11/site-packages, whatever the minor version
  for (const auto& entry : std::filesystem::directory_iterator(venv / "lib", failed)) {
    const Path folder = entry.path() / "site-packages" / package;
    if (std::filesystem::is_directory(folder, failed)) return folder;
  }
  return Status(Code::kNoInput, fmt::format("the Python package {} is not installed in {}: {}",
                                            package, venv.string(), HowToInstallPackages()));
}

std::string TorchIn(const Path& site_packages) {
  constexpr std::string_view kBefore = "__version__ = '";
  const auto text = ReadFile(site_packages / "torch" / "version.py", 1 << 16);
  const size_t at = text.ok() ? text->find(kBefore) : std::string::npos;
  if (at == std::string::npos) return {};
  const size_t begin = at + kBefore.size();
  return text->substr(begin, text->find('\'', begin) - begin);
}

}  // namespace samara
