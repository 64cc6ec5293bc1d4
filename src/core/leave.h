// SPDX-License-Identifier: Apache-2.0 OR MIT
// Ending the process at once, from a signal handler or from any thread: files that are half made
// are removed, and one line (for scripts one JSON object too) says why. Nothing else is cleaned up,
// so the caller has nothing to save. Thread safe; everything here but the constructor of
// RemovedOnLeave is async-signal-safe.
#pragma once

#include <filesystem>
#include <string_view>

#include "core/status.h"

namespace samara {

// Prints "samara: MESSAGE" on standard error and ends the process with `code`. Of several threads
// that leave at the same time one prints.
[[noreturn]] void Leave(Code code, std::string_view message) noexcept;

// Leave also prints {"error": MESSAGE, "exit": CODE} on standard output: for --json.
void LeaveWithJson();
// Leave prints nothing any more: the outcome is being printed already.
void LeaveSilently();

// A file, folder or link that Leave removes as long as this lives; its destructor removes nothing.
// Best effort: at most 16 at a time, paths of at most 1,000 bytes.
class RemovedOnLeave {
 public:
  explicit RemovedOnLeave(const std::filesystem::path& path);
  ~RemovedOnLeave();
  RemovedOnLeave(const RemovedOnLeave&) = delete;
  RemovedOnLeave& operator=(const RemovedOnLeave&) = delete;

 private:
  int entry_ = -1;
};

}  // namespace samara
