// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

#include "core/parse_number.h"
#include "core/status.h"

namespace samara {
namespace {

IsaLevel Detect() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return IsaLevel::kPortable;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return avx512 ? IsaLevel::kAvx512 : IsaLevel::kAvx2;
#else
  return IsaLevel::kPortable;
#endif
}

IsaLevel Choose() {
  const IsaLevel best = Detect();
  const char* wanted = std::getenv("SAMARA_ISA");
  if (wanted == nullptr || *wanted == 0) return best;
  for (IsaLevel level : AvailableIsaLevels()) {
    if (Name(level) == wanted) return level;
  }
  throw Error(Code::kConfig,
              std::string("SAMARA_ISA=") + wanted +
                  ": expected portable, avx2 or avx512, at most what this CPU has (" +
                  std::string(Name(best)) + ")");
}

uint32_t CoresLeft() {
  uint32_t cores = MachineCores();
  // of the process's first thread, whichever thread asks; not known on more than 1,024 cores
  cpu_set_t allowed;
  if (::sched_getaffinity(::getpid(), sizeof(allowed), &allowed) == 0)
    cores = static_cast<uint32_t>(CPU_COUNT(&allowed));
  std::ifstream quota("/sys/fs/cgroup/cpu.max");
  const std::string text(std::istreambuf_iterator<char>(quota), {});
  return std::max(1U, std::min(cores, CoresOfQuota(text).value_or(cores)));
}

}  // namespace

IsaLevel ActiveIsa() {
  static const IsaLevel level = Choose();
  return level;
}

std::vector<IsaLevel> AvailableIsaLevels() {
  std::vector<IsaLevel> levels;
  for (int level = 0; level <= static_cast<int>(Detect()); ++level) {
    levels.push_back(static_cast<IsaLevel>(level));
  }
  return levels;
}

bool HasBf16Products() {
#if defined(__x86_64__)
  return ActiveIsa() == IsaLevel::kAvx512 && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

bool HasShaInstructions() {
#if defined(__x86_64__)
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;  // leaf 7, bit 29 of EBX; gcc 12 has no name for it
    return ActiveIsa() >= IsaLevel::kAvx2 && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 &&
           (b >> 29 & 1) != 0;
  }();
  return has;
#else
  return false;
#endif
}

std::string_view Name(IsaLevel level) {
  switch (level) {
    case IsaLevel::kPortable:
      return "portable";
    case IsaLevel::kAvx2:
      return "avx2";
    case IsaLevel::kAvx512:
      return "avx512";
  }
  return "?";
}

std::string_view CpuName() {
  static const std::string name = [] {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
      if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
    }
    return std::string("unknown CPU");
  }();
  return name;
}

uint32_t MachineCores() { return std::max(1U, std::thread::hardware_concurrency()); }

std::optional<uint32_t> CoresOfQuota(const std::string& text) {
  std::istringstream words(text);
  uint64_t quota = 0, period = 0;
  if (!(words >> quota >> period) || quota == 0 || period == 0) return std::nullopt;
  return static_cast<uint32_t>(std::min<uint64_t>(4096, (quota + period - 1) / period));
}

uint32_t Cores() {
  static const uint32_t cores = [] {
    const char* share = std::getenv("SAMARA_CORES");
    if (share == nullptr || *share == 0) return CoresLeft();
    const auto wanted = ParseNumber<uint32_t>(share);
    if (!wanted || *wanted < 1 || *wanted > 4096)
      throw Error(Code::kConfig, std::string("SAMARA_CORES=") + share + ": expected 1 to 4096");
    return *wanted;
  }();
  return cores;
}

}  // namespace samara
