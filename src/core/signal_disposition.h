// SPDX-License-Identifier: Apache-2.0 OR MIT
// Signal dispositions that a process inherits.
#pragma once

#include <csignal>

namespace samara {

// Whether `signal` is ignored now. At the start of a process: by nohup, or by a shell without job
// control, which runs its background commands so. Such a signal is left alone.
inline bool IsIgnored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace samara
