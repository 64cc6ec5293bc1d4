// SPDX-License-Identifier: Apache-2.0 OR MIT
// Which instruction set the kernels use, chosen at run time, and how many cores.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
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

uint32_t MachineCores();  // at least 1
// Cores that this process may use, at least 1: SAMARA_CORES, else those of the machine that a
// scheduler or taskset (affinity) and a container (its cgroup's cpu.max) leave it.
uint32_t Cores();
// Cores that a cgroup's cpu.max ("QUOTA PERIOD" in microseconds) allows, rounded up; none for
// "max PERIOD" and for any other text.
std::optional<uint32_t> CoresOfQuota(const std::string& text);

}  // namespace samara
