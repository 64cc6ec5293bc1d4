#include "view/seeds_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/format.h"
#include "core/log.h"
#include "view/text_line.h"

namespace samara {
namespace {

using Phase = SeedState::Phase;

constexpr size_t kAllShown = 16;  // of more seeds, those that run or failed have a line

size_t Count(const SeedsState& state, Phase phase) {
  return static_cast<size_t>(std::ranges::count(state.seeds, phase, &SeedState::phase));
}

// Mean time of a whole run, of what is known of those that are done or run; NaN.
double SecondsOfOne(const SeedsState& state) {
  double sum = 0, count = 0;
  for (const SeedState& seed : state.seeds) {
    const double whole = seed.phase == Phase::kDone      ? seed.seconds
                         : seed.phase == Phase::kRunning ? seed.seconds + seed.left
                                                         : SeedState::kUnknown;
    if (!std::isnan(whole)) sum += whole, ++count;
  }
  return sum / count;
}

std::string Percent(double fraction) {
  return std::isnan(fraction) ? "     " : fmt::format("{:3.0f} %", std::floor(100 * fraction));
}

void AddDetails(const SeedState& seed, TextFlow& flow) {
  if (seed.phase == Phase::kWaiting) flow.Item("", "waiting", TextLine::kDim);
  if (seed.phase == Phase::kFailed) flow.Item("", "failed", "31");
  if (seed.phase == Phase::kRunning) flow.Item("", seed.step.empty() ? "starting" : seed.step);
  if (!std::isnan(seed.score)) flow.Item("score", ScoreText(seed.score), TextLine::kBold);
  if (seed.phase == Phase::kDone) flow.Item("done in", DurationText(seed.seconds));
  if (seed.phase != Phase::kRunning) return;
  if (!std::isnan(seed.left)) flow.Item("", DurationText(seed.left) + " left");
  if (!seed.trend.empty()) flow.Item("", seed.trend, TextLine::kGood);
}

std::string SeedLine(const SeedState& seed, int columns, bool colour) {
  constexpr int kDetails = 44;  // columns for what stands behind the bar
  TextLine line(columns, colour);
  line.Add(fmt::format("seed {:<4} ", seed.seed), TextLine::kDim);
  const double done = seed.phase == Phase::kDone ? 1 : seed.fraction;
  line.AddBar(std::isnan(done) ? 0 : done, kDetails);
  line.Add(" " + Percent(done) + " ");
  TextFlow details(line.room(), colour);
  AddDetails(seed, details);
  std::vector<std::string> first;
  details.AppendTo(first);
  return line.Take() + (first.empty() ? "" : first[0]);
}

}  // namespace

double SecondsLeft(const SeedsState& state) {
  std::vector<double> left;  // of each place in which a run can be
  for (const SeedState& seed : state.seeds)
    if (seed.phase == Phase::kRunning) left.push_back(seed.left);
  const size_t waiting = Count(state, Phase::kWaiting);
  left.resize(std::max(left.size(), std::min<size_t>(state.at_once, left.size() + waiting)), 0);
  if (left.empty()) return 0;
  // the next seed begins where a place becomes free first
  const double each = SecondsOfOne(state);
  for (size_t i = 0; i < waiting; ++i) *std::ranges::min_element(left) += each;
  for (const double one : left)
    if (std::isnan(one)) return one;
  return *std::ranges::max_element(left);
}

std::vector<std::string> SeedsLines(const SeedsState& state, int columns, bool colour) {
  std::vector<std::string> lines;
  TextLine title(columns, colour);
  title.Add(EscapeControl(state.title), TextLine::kBold);
  lines.push_back(title.Take());
  TextFlow flow(columns, colour);
  flow.Item("", fmt::format("{} of {} seeds done", Count(state, Phase::kDone), state.seeds.size()),
            TextLine::kBold);
  flow.Item("", fmt::format("{} at once", state.at_once));
  flow.Item("elapsed", DurationText(state.seconds));
  if (const double left = SecondsLeft(state); left > 0) flow.Item("left", DurationText(left));
  flow.AppendTo(lines);
  for (const SeedState& seed : state.seeds) {
    const bool shown = seed.phase == Phase::kRunning || seed.phase == Phase::kFailed;
    if (state.seeds.size() <= kAllShown || shown) lines.push_back(SeedLine(seed, columns, colour));
  }
  return lines;
}

std::string SeedsPlainLine(const SeedsState& state) {
  std::string line =
      fmt::format("{} of {} seeds done", Count(state, Phase::kDone), state.seeds.size());
  for (const SeedState& seed : state.seeds) {
    if (seed.phase != Phase::kRunning) continue;
    line += fmt::format(", seed {}", seed.seed);
    if (!std::isnan(seed.fraction)) line += " " + Percent(seed.fraction);
    if (!std::isnan(seed.score)) line += " score " + ScoreText(seed.score);
  }
  line += ", " + DurationText(state.seconds);
  if (const double left = SecondsLeft(state); left > 0)
    line += fmt::format(", {} left", DurationText(left));
  return line;
}

}  // namespace samara
