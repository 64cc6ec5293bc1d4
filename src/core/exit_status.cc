// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/exit_status.h"

#include <sys/wait.h>

#include <cstring>

namespace samara {

std::string DescribeExit(int wait_status) {
  if (WIFEXITED(wait_status)) return "exit status " + std::to_string(WEXITSTATUS(wait_status));
  const int number = WTERMSIG(wait_status);
  return "killed by signal " + std::to_string(number) + " (" + ::strsignal(number) + ")";
}

}  // namespace samara
