#include "view/runs_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/format.h"
#include "core/log.h"
#include "view/text_line.h"

namespace samara {
namespace {

using Phase = RunState::Phase;

constexpr size_t kAllShown = 16;  // of more runs, those that run or failed have a line

size_t Count(const RunsState& state, Phase phase) {
  return static_cast<size_t>(std::ranges::count(state.runs, phase, &RunState::phase));
}

// Mean time of a whole run, of what is known of those that are done or run; NaN.
double SecondsOfOne(const RunsState& state) {
  double sum = 0, count = 0;
  for (const RunState& run : state.runs) {
    const double whole = run.phase == Phase::kDone      ? run.seconds
                         : run.phase == Phase::kRunning ? run.seconds + run.left
                                                        : RunState::kUnknown;
    if (!std::isnan(whole)) sum += whole, ++count;
  }
  return sum / count;
}

// "2 of 5 seeds done"
std::string Done(const RunsState& state) {
  return fmt::format("{} of {} {} done", Count(state, Phase::kDone), state.runs.size(), state.kind);
}

std::string Percent(double fraction) {
  return std::isnan(fraction) ? "     " : fmt::format("{:3.0f} %", std::floor(100 * fraction));
}

void AddDetails(const RunState& run, TextFlow& flow) {
  if (run.phase == Phase::kWaiting) flow.Item("", "waiting", TextLine::kDim);
  if (run.phase == Phase::kFailed) flow.Item("", "failed", "31");
  if (run.phase == Phase::kRunning) flow.Item("", run.step.empty() ? "starting" : run.step);
  if (!std::isnan(run.score)) flow.Item("score", ScoreText(run.score), TextLine::kBold);
  if (run.phase == Phase::kDone) flow.Item("done in", DurationText(run.seconds));
  if (run.phase != Phase::kRunning) return;
  if (!std::isnan(run.left)) flow.Item("", DurationText(run.left) + " left");
  if (!run.trend.empty()) flow.Item("", run.trend, TextLine::kGood);
}

constexpr int kDetails = 44;  // columns for what stands behind the bar
constexpr int kPercent = 9;   // columns for the percentage, with the bar's edges

// Columns for the names: of the longest, as far as the rest has room. The bar goes first.
int NameColumns(const RunsState& state, int columns) {
  constexpr int kLeast = 9;  // "seed 1234"
  int longest = kLeast;
  for (const RunState& run : state.runs) longest = std::max(longest, VisibleWidth(run.name));
  return std::max(kLeast, std::min(longest, columns - kDetails - kPercent));
}

// A name in `columns`; of a longer one the end, where runs of a sweep differ.
std::string Fitted(const std::string& name, int columns) {
  const int width = VisibleWidth(name);
  if (width <= columns) return name + std::string(static_cast<size_t>(columns - width), ' ');
  size_t at = 0;  // the first byte that is shown
  for (int cut = 0; cut <= width - columns; ++cut) do
      ++at;
    while (at < name.size() && (static_cast<unsigned char>(name[at]) & 0xC0) == 0x80);
  return "\u2026" + name.substr(at);
}

// `names`: columns for the name.
std::string LineOf(const RunState& run, int names, int columns, bool colour) {
  TextLine line(columns, colour);
  line.Add(Fitted(run.name, names) + " ", TextLine::kDim);
  const double done = run.phase == Phase::kDone ? 1 : run.fraction;
  line.AddBar(std::isnan(done) ? 0 : done, kDetails);
  line.Add(" " + Percent(done) + " ");
  TextFlow details(line.room(), colour);
  AddDetails(run, details);
  std::vector<std::string> first;
  details.AppendTo(first);
  return line.Take() + (first.empty() ? "" : first[0]);
}

}  // namespace

double SecondsLeft(const RunsState& state) {
  std::vector<double> left;  // of each place in which a run can be
  for (const RunState& run : state.runs)
    if (run.phase == Phase::kRunning) left.push_back(run.left);
  const size_t waiting = Count(state, Phase::kWaiting);
  left.resize(std::max(left.size(), std::min<size_t>(state.at_once, left.size() + waiting)), 0);
  if (left.empty()) return 0;
  // the next run begins where a place becomes free first
  const double each = SecondsOfOne(state);
  for (size_t i = 0; i < waiting; ++i) *std::ranges::min_element(left) += each;
  for (const double one : left)
    if (std::isnan(one)) return one;
  return *std::ranges::max_element(left);
}

std::vector<std::string> RunsLines(const RunsState& state, int columns, bool colour) {
  std::vector<std::string> lines;
  TextLine title(columns, colour);
  title.Add(EscapeControl(state.title), TextLine::kBold);
  lines.push_back(title.Take());
  TextFlow flow(columns, colour);
  flow.Item("", Done(state), TextLine::kBold);
  flow.Item("", fmt::format("{} at once", state.at_once));
  flow.Item("elapsed", DurationText(state.seconds));
  if (const double left = SecondsLeft(state); left > 0) flow.Item("left", DurationText(left));
  flow.AppendTo(lines);
  const int names = NameColumns(state, columns);
  for (const RunState& run : state.runs) {
    const bool shown = run.phase == Phase::kRunning || run.phase == Phase::kFailed;
    if (state.runs.size() <= kAllShown || shown)
      lines.push_back(LineOf(run, names, columns, colour));
  }
  return lines;
}

std::string RunsPlainLine(const RunsState& state) {
  std::string line = Done(state);
  for (const RunState& run : state.runs) {
    if (run.phase != Phase::kRunning) continue;
    line += ", " + run.name;
    if (!std::isnan(run.fraction)) line += " " + Percent(run.fraction);
    if (!std::isnan(run.score)) line += " score " + ScoreText(run.score);
  }
  line += ", " + DurationText(state.seconds);
  if (const double left = SecondsLeft(state); left > 0)
    line += fmt::format(", {} left", DurationText(left));
  return line;
}

}  // namespace samara
