// Sizes that `samara bench collectives` measures, for samara and for MPI.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace samara::bench {

inline constexpr const char* kCollectives[] = {"all_reduce", "all_gather", "broadcast"};
inline constexpr size_t kCollectiveBytes[] = {4,         1 << 10, 16 << 10,
                                              256 << 10, 4 << 20, 16 << 20};  // of one rank

// How often a call that takes `call_s` is repeated to fill `seconds`.
inline uint64_t Repetitions(double seconds, double call_s) {
  return static_cast<uint64_t>(std::clamp(seconds / std::max(1e-7, call_s), 5.0, 1e5));
}

}  // namespace samara::bench
