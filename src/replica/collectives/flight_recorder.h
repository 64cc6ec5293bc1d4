// The last collectives of a rank: a record that explains the failure of a group.
#pragma once

#include <string>
#include <vector>

#include "core/clock.h"
#include "core/files.h"
#include "core/mutex.h"
#include "core/ring.h"
#include "replica/rendezvous/world.h"

namespace samara {

struct FlightRecord {
  uint64_t sequence = 0;
  std::string text;       // "all_reduce sum of float32[3,4] at train.cc:41"
  const char* transport;  // a literal
  uint64_t bytes = 0;     // of this rank's part
  SteadyTime begin{}, end{};
  bool failed = false, ended = false;
};

// Work between collectives, for the trace of a step.
struct FlightSpan {
  std::string track, name;  // "replica 3", "step 12"
  SteadyTime begin{}, end{};
};

// Where the record of a rank that fails goes; empty: nowhere. `folder`/flight-RANK.json, and
// without a folder that of SAMARA_TRACE. Where that is not set, a file of this process among the
// temporary ones; where it is set to nothing, nowhere.
Path FlightFile(const std::string& folder, int rank, const EnvironmentVariables& environment);

// Thread safety: every method may be called from any thread.
class FlightRecorder {
 public:
  explicit FlightRecorder(size_t records_max = 256)
      : records_(records_max), spans_(records_max), origin_(Now()) {}
  void Begin(uint64_t sequence, std::string text, const char* transport, uint64_t bytes);
  void End(bool failed);                                             // of the last one begun
  void Span(std::string track, std::string name, SteadyTime begin);  // until now
  bool empty() const;
  // Oldest first.
  std::vector<FlightRecord> records() const;
  // {"rank","world_size","error","records":[{"sequence","text","transport","bytes","begin_s","seconds","state"}]}
  std::string Json(int rank, int size, const std::string& error) const;
  // Json in the place of `file`, whole or not at all, but not flushed to the disk: a
  // rank that fails should not wait for one.
  Status Write(const Path& file, int rank, int size, const std::string& error) const;
  // Chrome's trace format: one event a collective and a span, times in microseconds.
  std::string ChromeTrace(int rank) const;

 private:
  mutable Mutex mu_;
  std::vector<FlightRecord> records_ GUARDED_BY(mu_);  // a ring
  size_t count_ GUARDED_BY(mu_) = 0;                   // ever begun
  std::vector<FlightSpan> spans_ GUARDED_BY(mu_);      // a ring
  size_t span_count_ GUARDED_BY(mu_) = 0;
  const SteadyTime origin_;
};

}  // namespace samara
