// Records of the work of each core over time for `samara bench schedule`, and their sums.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/files.h"

namespace samara::bench {

// RESET, STEP, LAST_STEP, INFERENCE in python/samara/trace.py
enum class SpanKind : int64_t { kReset, kStep, kLastStep, kInference };

// A record of a trace file: nanoseconds of the monotonic clock and of the thread's processor time.
struct Span {
  int64_t core = 0;
  SpanKind kind = SpanKind::kReset;
  int64_t begin = 0, end = 0;
  int64_t cpu_begin = 0, cpu_end = 0;
  bool inference() const { return kind == SpanKind::kInference; }
};
static_assert(sizeof(Span) == 6 * sizeof(int64_t));

int64_t MonotonicNs();
int64_t ThreadCpuNs();
// The calling thread runs on the `core`-th of the cores that this process may use.
void PinThread(uint32_t core);

// Every trace file of the folder, in order of time. kBadData on a torn record.
Result<std::vector<Span>> ReadSpans(const Path& folder);
// Adds an inference span wherever a process went from one step of an episode to the next, for
// actors that choose their actions themselves. REQUIRES: one process a core; in order of time.
void FillGaps(std::vector<Span>& spans);

// One schedule as it ran between two moments.
struct Schedule {
  std::string name = {}, operations = {};  // "pipelined", "samara"
  std::string how = {};                    // a line for the reader
  uint32_t cores = 1;
  int64_t begin = 0, end = 0;  // the window that is counted
  std::vector<Span> spans = {};
  double others_share = 0;  // OthersShare of the whole run, its start included

  double FramesPerSecond(double frames_per_step) const;
  double HoursPerBillion(double frames_per_step) const {
    return 1e9 / FramesPerSecond(frames_per_step) / 3600;
  }
  // Share of all cores' time in the window that was spent on one kind of span.
  double Share(bool inference) const;
};

// The schedules under each other, cores as rows, the first `milliseconds` of each window.
std::string Picture(const std::vector<Schedule>& schedules, double frames_per_step,
                    double milliseconds, const std::string& title);

}  // namespace samara::bench
