// The end of a process by an exception that leaves `main`.
#pragma once

#include <memory>

#include "replica/torch/state.h"

namespace samara {

// From now on such an exception ends the process as Replicate does: one line, its exit code, and
// the other ranks end too, once `state` is set. Null: only the line and the code.
void InstallTerminateHandler(const std::shared_ptr<ReplicatorState>& state);

}  // namespace samara
