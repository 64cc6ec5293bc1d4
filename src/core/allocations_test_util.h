// SPDX-License-Identifier: Apache-2.0 OR MIT
// Allocations of the whole test program, by operator new (allocation_counter_test.cc, which the
// program is to be linked with).
#pragma once

#include <cstdint>

namespace samara {

struct Allocations {
  uint64_t calls = 0;
  int64_t bytes = 0, bytes_peak = 0;  // live
};
Allocations AllocationsSoFar();
void ResetAllocationPeak();  // to what is live now

}  // namespace samara
