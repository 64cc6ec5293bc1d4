// The peers of `samara bench inference`: environments that cost nothing, and what the same memory
// does without samara.
#pragma once

#include <array>
#include <cstdint>

#include "core/status.h"

namespace samara::bench {

// How long things took, in buckets of 1/16 of an octave from a nanosecond up; nothing is allocated.
class Latencies {
 public:
  void Add(double seconds);
  // Returns a quantile of all that was added, in microseconds, exact to 5 %; 0 when nothing was.
  double Microseconds(double quantile) const;

 private:
  std::array<uint64_t, 16 * 40> counts_{};
  uint64_t all_ = 0;
};

// Steps in a row of which an environment's reward says how long the first one's action took to
// come, in seconds from the return of the observation; the others pay 0.
inline constexpr uint32_t kLatencyEvery = 4;

// This process is an actor of a fleet whose environments copy a payload of {"bytes": N} and do
// nothing else. Returns when the engine is done with it.
Status ServePayloads();

// A ring of `outstanding` payloads in memory that two processes share, each row copied in by one
// and out by the other, which answers with a number; both spin. Rows per second.
Result<double> BareRing(uint64_t payload_bytes, uint32_t outstanding, double seconds);

}  // namespace samara::bench
