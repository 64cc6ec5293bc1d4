// Live progress of a run: a few lines redrawn in place on a terminal, one plain line every ten
// seconds anywhere else (live_lines.h).
//
//   Progress progress([&] { return run.Snapshot(); }, stderr);
//   ...                         // work; Print() or the log for lines above the display
//                               // the destructor draws the last state and leaves it standing
#pragma once

#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "view/live_lines.h"
#include "view/trend.h"
#include "view/utilization.h"

namespace samara {

// Evolution goes on by whole generations: what has been measured of them.
struct GenerationPace {
  struct Spent {
    double seconds = 0, frames = 0, episodes = 0;
  };
  Spent before, now;          // the last generation; the one that is played, so far
  double episodes_total = 0;  // of the latter, over all phases; 0 = none is played
};

// State that the display shows; the run fills one on each call. Unknown numbers keep these
// defaults.
struct ProgressState {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  std::string title;                        // "atari/deep-ga-desktop, frostbite, seed 1"
  const char* step_name = "generation";     // or "update"
  int64_t generation = 0, generations = 0;  // current (from 1) and last; 0 = no limit
  int64_t frames = 0, frames_budget = 0;    // emulated frames so far; 0 = no limit
  double seconds = 0, seconds_budget = 0;   // running time over resumes; 0 = no limit
  std::optional<GenerationPace> pace;       // where a started generation is always finished
  std::string phase;                        // "population", "validation", "test"
  int64_t phase_done = 0, phase_total = 0;  // episodes of the current phase
  std::vector<std::pair<std::string, double>> last_seconds;  // of the last generation, by phase
  std::vector<StageShare> stages;                            // the largest is the bottleneck
  const char* stages_title = "";                             // of their shares: "utilization: "
  struct Number {
    std::string name, text;
    bool plain = false;     // also in the plain line
    bool is_score = false;  // among the scores
  };
  std::vector<Number> numbers;  // more to show
  const char* best_name = "best";
  double best = kUnknown;    // best return in the last population, in the first so far; or of
                             // the best evaluation
  double score = kUnknown;   // whose course is shown
  int64_t scored = 0;        // with a pace: number of the generation whose score that is
  std::string trend;         // that course; Progress fills it in (trend.h)
  double peak = kUnknown;    // its highest point; Progress fills it in
  double elite = kUnknown;   // the elite's validation mean
  double random = kUnknown;  // a random policy's mean
  int64_t respawns = 0;
};

// The part of the run that is over, 0 to 1, in time: of what has passed and what is left. NaN when
// that cannot be said.
double FractionDone(const ProgressState& state, double frames_per_second);
// Seconds until the first budget is reached: at this rate (frames/s), that of steps at their mean
// time so far; with a pace at the end of the generation that reaches it. NaN when nothing can be
// said.
double SecondsLeft(const ProgressState& state, double frames_per_second);
// The display, each line at most `columns` wide; escape sequences for colour take no width.
std::vector<std::string> ProgressLines(const ProgressState& state, double frames_per_second,
                                       int columns, bool colour);
std::string ProgressPlainLine(const ProgressState& state, double frames_per_second);

// The state as another program reads it: {"progress": {...}} with what the display says of the
// whole run: step, frames, frames_per_second, seconds, left, fraction, score, peak, best, trend.
// null: unknown.
std::string ProgressJsonLine(const ProgressState& state, double frames_per_second);

struct ProgressOptions {
  double interval_s = 0.25;      // on a terminal, and of JSON lines
  double interval_plain_s = 10;  // elsewhere
  enum class Mode { kDetect, kTerminal, kPlain, kJson } mode = Mode::kDetect;
  std::vector<double> earlier = {};  // scores of the run before a resume
};

// Owns a thread: neither copied nor moved. `snapshot` is called from that thread, and once more
// from the destructor's; it must not log. While it lives on a terminal, the process's log goes
// through it. At most one at a time.
class Progress {
 public:
  Progress(std::function<ProgressState()> snapshot, std::FILE* out,
           const ProgressOptions& options = {});
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // One line above the display; any thread.
  void Print(std::string_view line) { lines_.Print(line); }

 private:
  LivePicture Draw();
  double Rate(const ProgressState& state);

  // constant after construction
  const std::function<ProgressState()> snapshot_;
  const bool json_;

  // touched by the display's thread only, then by the destructor
  std::deque<std::pair<SteadyTime, int64_t>> samples_;  // frames over the last seconds
  Trend trend_;                                         // of the score
  int64_t marked_ = -1;                                 // generation or frames of its last sample
  double peak_ = ProgressState::kUnknown;

  LiveLines lines_;  // last: it uses everything above
};

}  // namespace samara
