// The display of several runs of one command, of seeds or settings: a line for each with a bar, how
// many are done, the time left of all.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace samara {

struct RunState {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  std::string name{};  // "seed 3", without control characters
  enum class Phase { kWaiting, kRunning, kDone, kFailed } phase = Phase::kWaiting;
  std::string step{}, trend{};  // "generation 12 of 30" and the score's course (view/trend.h)
  double fraction = kUnknown, seconds = kUnknown, left = kUnknown;
  double score = kUnknown;  // the last one; of a run that is done, its result
};

struct RunsState {
  std::string title, kind;  // kind: what the runs are, "seeds"
  double seconds = 0;       // since the first was started
  uint32_t at_once = 1;
  std::vector<RunState> runs;
};

// Seconds until the last run is done, where those that wait take as long as those that run or are
// done. NaN when nothing can be said.
double SecondsLeft(const RunsState& state);
std::vector<std::string> RunsLines(const RunsState& state, int columns, bool colour);
std::string RunsPlainLine(const RunsState& state);

}  // namespace samara
