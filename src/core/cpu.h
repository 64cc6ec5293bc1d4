// SPDX-License-Identifier: Apache-2.0 OR MIT
// Which instruction set the kernels use, chosen at run time.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace samara {

// Ordered: a machine that has a level has all lower ones.
enum class IsaLevel {
  kPortable = 0,
  kAvx2 = 1,
  kAvx512 = 2
};  // kAvx2 implies FMA and F16C; kAvx512: F, BW, DQ, VL

// The best level of this CPU, or the one that the environment variable SAMARA_ISA names
// (portable, avx2, avx512) when the CPU has it; throws Error(kConfig) on any other value.
IsaLevel ActiveIsa();
// Every level that this CPU can run, lowest first: tests compare them all.
std::vector<IsaLevel> AvailableIsaLevels();
std::string_view Name(IsaLevel level);
// Whether products of bfloat16 are quicker here than those of float32: AVX512_BF16.
bool HasBf16Products();
// SHA-256's instructions; false where SAMARA_ISA is portable.
bool HasShaInstructions();
// The CPU's own name, for results and reports.
std::string_view CpuName();
uint32_t Cores();  // that this process may use; at least 1

}  // namespace samara
