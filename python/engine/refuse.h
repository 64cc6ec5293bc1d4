// SPDX-License-Identifier: Apache-2.0 OR MIT
#pragma once

#include <string>

#include "core/status.h"

namespace samara {

// Throws what Python sees as samara.Error with exit code 78.
[[noreturn]] inline void Refuse(const std::string& why) { throw Error(Code::kConfig, why); }

}  // namespace samara
