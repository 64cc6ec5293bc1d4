// SPDX-License-Identifier: Apache-2.0 OR MIT
// Monotonic time for time-outs, leases and rates; wall time only for humans.
#pragma once

#include <chrono>
#include <string>

namespace samara {

using SteadyTime = std::chrono::steady_clock::time_point;
inline SteadyTime Now() { return std::chrono::steady_clock::now(); }
inline double SecondsSince(SteadyTime start) {
  return std::chrono::duration<double>(Now() - start).count();
}
// "2026-01-31T12:00:00Z": for logs and run records, never for ordering.
std::string WallTimeIso();

}  // namespace samara
