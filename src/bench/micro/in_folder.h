// The main function of a benchmark that works in a folder.
#pragma once

#include <fmt/format.h>

#include "core/files.h"

namespace samara {

// Calls `work` with a new folder below the one that is given as argument, by default the current
// one, and removes it. Returns the exit code.
inline int RunInFolder(const char* name, int argc, char** argv, void (*work)(const Path& folder)) {
  try {
    const RootedPath folder = TemporaryName(Path(argc > 1 ? argv[1] : ".") / name);
    ThrowIfError(MakeFolder(folder));
    work(folder.path());
    ThrowIfError(RemoveTree(folder));
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return static_cast<int>(error.status().code());
  }
}

}  // namespace samara
