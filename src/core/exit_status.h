// SPDX-License-Identifier: Apache-2.0 OR MIT
// How a process ended, in words.
#pragma once

#include <string>

namespace samara {

// "killed by signal 9 (Killed)", "exit status 3". `wait_status`: of waitpid, of a process that has
// ended.
std::string DescribeExit(int wait_status);

}  // namespace samara
