// SPDX-License-Identifier: Apache-2.0 OR MIT
// Where the Python environment of samara lives: simulators and their data come from its packages.
#pragma once

#include <string>
#include <string_view>

#include "core/files.h"

namespace samara {

// The folder `.venv` that `make setup` made: the environment variable SAMARA_VENV; else `../.venv`
// seen from the running program (build/samara), or the environment into which pip installed the
// program; else the one that is activated (VIRTUAL_ENV). Never one for lying in the current folder:
// its programs are run. It holds bin/python. kNoInput names what was looked at.
Result<Path> FindVenv();

// The folder that holds the Python package `samara` (site-packages) where the running program was
// installed by pip as part of that package, samara/bin/samara; empty elsewhere.
Path SitePackagesOfProgram();

// How packages of Python are installed where this program lies, for messages: "run `make setup`" in
// a source tree; what an unpacked archive's README says; pip elsewhere.
std::string HowToInstallPackages();

// How to have a part that this build lacks, for messages: packages of the system in a source tree,
// a setting of CMake for a program that pip installed.
std::string HowToBuildWith(std::string_view packages, std::string_view setting);

// The folder of an installed package, "mujoco" or "gymnasium". kNoInput when it is not installed.
Result<Path> FindVenvPackage(std::string_view package);

// The release of the package torch in a folder of packages, "2.13.0+cpu"; empty when there is none.
std::string TorchIn(const Path& site_packages);

}  // namespace samara
