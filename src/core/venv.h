// SPDX-License-Identifier: Apache-2.0 OR MIT
// Where the Python environment of samara lives: simulators and their data come from its packages.
#pragma once

#include <string>
#include <string_view>

#include "core/files.h"

namespace samara {

// The folder `.venv` that `make setup` made: the environment variable SAMARA_VENV; else `../.venv`
// seen from the running program (build/samara); else the one that is activated (VIRTUAL_ENV). Never
// one for lying in the current folder: its programs are run. It holds bin/python. kNoInput names
// what was looked at.
Result<Path> FindVenv();

// How packages of Python are installed where this program lies, for messages: "run `make setup`" in
// a source tree; what an unpacked archive's README says; pip elsewhere.
std::string HowToInstallPackages();

// The folder of an installed package, "mujoco" or "gymnasium". kNoInput when it is not installed.
Result<Path> FindVenvPackage(std::string_view package);

}  // namespace samara
