// The display of several runs of one configuration that differ in their seed: a line for each with
// a bar, how many are done, the time left of all.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace samara {

struct SeedState {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  int64_t seed = 0;
  enum class Phase { kWaiting, kRunning, kDone, kFailed } phase = Phase::kWaiting;
  std::string step{}, trend{};  // "generation 12 of 30" and the score's course (view/trend.h)
  double fraction = kUnknown, seconds = kUnknown, left = kUnknown;
  double score = kUnknown;  // the last one; of a run that is done, its result
};

struct SeedsState {
  std::string title;
  double seconds = 0;  // since the first was started
  uint32_t at_once = 1;
  std::vector<SeedState> seeds;
};

// Seconds until the last seed is done, where those that wait take as long as those that run or are
// done. NaN when nothing can be said.
double SecondsLeft(const SeedsState& state);
std::vector<std::string> SeedsLines(const SeedsState& state, int columns, bool colour);
std::string SeedsPlainLine(const SeedsState& state);

}  // namespace samara
