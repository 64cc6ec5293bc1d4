// SPDX-License-Identifier: Apache-2.0 OR MIT
// Failures for want of memory, threads or processes, all of them kNoResources.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "core/status.h"

namespace samara {

// Whether a system call fails with `error_number` because a limit is reached or memory is short.
bool NoResources(int error_number);
// "WHAT: the system's reason", and what to lower. `otherwise`: the code of other reasons, which get
// no advice.
Status SystemError(const std::string& what, int error_number, Code otherwise);
// Returns the status of an exception: of an Error its own; kNoResources where memory (torch's too)
// or a thread was refused; kUnavailable where a GPU has no memory; kInternal otherwise.
Status StatusOf(const std::exception& error);
// Bytes of memory that this process may still come to use: what the system has free, or its control
// group's limit or that on its address space leaves. Nothing where none says.
std::optional<uint64_t> AvailableMemory();

}  // namespace samara
