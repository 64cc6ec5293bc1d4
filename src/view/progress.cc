#include "view/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/format.h"
#include "core/log.h"
#include "view/text_line.h"

namespace samara {
namespace {

constexpr double kRateWindowSeconds = 15;

double PhaseFraction(const ProgressState& s) {
  return s.phase_total > 0 ? static_cast<double>(s.phase_done) / static_cast<double>(s.phase_total)
                           : 0;
}

std::string Generation(const ProgressState& s) {
  if (s.generations > 0)
    return fmt::format("{} {} of {}", s.step_name, s.generation, s.generations);
  return fmt::format("{} {}", s.step_name, s.generation);
}

std::string Frames(const ProgressState& s) {
  const auto short_of = [](int64_t n) { return ShortNumber(static_cast<double>(n)); };
  const bool last = s.pace && s.pace->episodes_total > 0 && s.frames >= s.frames_budget;
  if (s.frames_budget > 0)
    return fmt::format("{} of {} frames{}", short_of(s.frames), short_of(s.frames_budget),
                       last ? ", this generation is the last" : "");
  return short_of(s.frames) + " frames";
}

std::string Rate(double frames_per_second) {
  return Grouped(std::round(frames_per_second)) + " frames/s";
}

std::string Respawns(int64_t n) { return CountText(static_cast<double>(n), "respawn"); }

void AddNumbers(const ProgressState& s, double frames_per_second, TextFlow& flow) {
  flow.Item("", Generation(s), TextLine::kBold);
  flow.Item("", Frames(s));
  flow.Item("", Rate(frames_per_second));
  flow.Item("elapsed", DurationText(s.seconds));
  if (s.respawns > 0) flow.Item("", Respawns(s.respawns), TextLine::kBottleneck);
}

void AddScores(const ProgressState& s, TextFlow& flow) {
  const auto score = [&](const char* name, double value, std::string_view style) {
    if (!std::isnan(value)) flow.Item(name, ScoreText(value), style);
  };
  score(s.best_name, s.best, TextLine::kBold);
  score("elite", s.elite, "1;32");
  for (const auto& [name, text, plain, is_score] : s.numbers)
    if (is_score) flow.Item(name, text, TextLine::kBold);
  if (!s.trend.empty()) flow.Item("trend", s.trend, TextLine::kGood);
  score("peak", s.trend.empty() ? ProgressState::kUnknown : s.peak, TextLine::kBold);
  score("random policy", s.random, {});
}

void AddOthers(const ProgressState& s, TextFlow& flow) {
  for (const auto& [name, text, plain, is_score] : s.numbers)
    if (!is_score) flow.Item(name, text);
}

void AddStages(const ProgressState& s, TextFlow& flow) {
  const std::string binding = Bottleneck(s.stages);
  const char* title = s.stages_title;
  for (const auto& [name, share] : s.stages) {
    const bool binds = name == binding;
    flow.Item(title + EscapeControl(name),
              fmt::format("{:.0f} %{}", 100 * share, binds ? " (bottleneck)" : ""),
              binds ? TextLine::kBottleneck : "");
    title = "";
  }
}

// "18.2 s"; from a minute on, whole seconds say enough.
std::string PhaseSeconds(double seconds) {
  return seconds < 60 ? fmt::format("{:.{}f} s", seconds, seconds < 1 ? 2 : 1)
                      : DurationText(seconds);
}

void AddLastGeneration(const ProgressState& s, TextFlow& flow) {
  const char* title = "last: ";
  for (const auto& [name, seconds] : s.last_seconds) {
    flow.Item(title + EscapeControl(name), PhaseSeconds(seconds));
    title = "";
  }
}

constexpr int kBarNameWidth = 10;

std::string BarLine(std::string_view name, double fraction, const std::string& text, int columns,
                    bool colour) {
  TextLine line(columns, colour);
  const bool narrow = columns <= kBarNameWidth + VisibleWidth(text);  // no room to align names
  const std::string shown = EscapeControl(name);
  line.Add(narrow ? shown : fmt::format("{:<{}} ", shown, kBarNameWidth), TextLine::kDim);
  line.AddBar(fraction, VisibleWidth(text));
  line.Add(text);
  return line.Take();
}

// The whole run.
std::string RunLine(const ProgressState& s, double frames_per_second, int columns, bool colour) {
  const double done = FractionDone(s, frames_per_second);
  return BarLine("run", done,
                 fmt::format(" {:.0f} %, {} left", std::floor(100 * done),
                             DurationText(SecondsLeft(s, frames_per_second))),
                 columns, colour);
}

std::string PhaseLine(const ProgressState& s, int columns, bool colour) {
  return BarLine(s.phase, PhaseFraction(s), fmt::format(" {} of {}", s.phase_done, s.phase_total),
                 columns, colour);
}

// Whole generations, the one that is played included, until the first budget is reached.
double SecondsOfGenerations(const ProgressState& s, const GenerationPace& pace) {
  const auto& [before, now, total] = pace;
  const double each = total > 0 ? total : before.episodes;  // episodes of a generation
  const double measured = before.episodes + now.episodes;
  // less than a tenth of a generation says nothing about the rest
  if (measured <= 0.1 * each) return ProgressState::kUnknown;
  const double seconds = (before.seconds + now.seconds) / measured * each;
  const double frames = (before.frames + now.frames) / measured * each;
  const double rest = total > 0 ? std::max(1 - now.episodes / total, 0.0) : 0;
  double more = std::numeric_limits<double>::infinity();  // generations after this one
  const auto spend = [&](double missing, double by_each) {
    more = std::min(more, std::ceil(std::max(missing / by_each - rest, 0.0)));
  };
  if (s.frames_budget > 0 && frames > 0)
    spend(static_cast<double>(s.frames_budget - s.frames), frames);
  if (s.generations > 0)
    more = std::min(more, static_cast<double>(std::max<int64_t>(s.generations - s.generation, 0)));
  if (s.seconds_budget > 0 && seconds > 0) spend(s.seconds_budget - s.seconds, seconds);
  return std::isinf(more) ? ProgressState::kUnknown : (rest + more) * seconds;
}

// Steps take as long as those so far, on average.
double SecondsOfSteps(const ProgressState& s) {
  const int64_t missing = std::max<int64_t>(s.generations - s.generation, 0);
  return s.seconds * static_cast<double>(missing) / static_cast<double>(s.generation);
}

}  // namespace

double SecondsLeft(const ProgressState& s, double frames_per_second) {
  if (s.pace) return SecondsOfGenerations(s, *s.pace);
  double left = std::numeric_limits<double>::infinity();
  if (s.frames_budget > 0 && frames_per_second > 0)
    left =
        static_cast<double>(std::max<int64_t>(s.frames_budget - s.frames, 0)) / frames_per_second;
  if (s.seconds_budget > 0) left = std::min(left, std::max(s.seconds_budget - s.seconds, 0.0));
  if (s.generations > 0 && s.generation > 0 && s.seconds > 0)
    left = std::min(left, SecondsOfSteps(s));
  return std::isinf(left) ? ProgressState::kUnknown : left;
}

double FractionDone(const ProgressState& s, double frames_per_second) {
  const double left = SecondsLeft(s, frames_per_second);
  if (std::isnan(left)) return left;
  return s.seconds + left > 0 ? s.seconds / (s.seconds + left) : 0;
}

std::vector<std::string> ProgressLines(const ProgressState& s, double frames_per_second,
                                       int columns, bool colour) {
  std::vector<std::string> lines;
  TextLine title(columns, colour);
  title.Add(EscapeControl(s.title), TextLine::kBold);
  lines.push_back(title.Take());

  const auto flow = [&](auto add) {
    TextFlow items(columns, colour);
    add(items);
    items.AppendTo(lines);
  };
  if (!std::isnan(FractionDone(s, frames_per_second)))
    lines.push_back(RunLine(s, frames_per_second, columns, colour));
  if (!s.phase.empty() && s.phase_total > 0) lines.push_back(PhaseLine(s, columns, colour));
  flow([&](TextFlow& items) { AddNumbers(s, frames_per_second, items); });
  flow([&](TextFlow& items) { AddScores(s, items); });
  flow([&](TextFlow& items) { AddOthers(s, items); });
  flow([&](TextFlow& items) { AddLastGeneration(s, items); });
  flow([&](TextFlow& items) { AddStages(s, items); });
  return lines;
}

std::string ProgressPlainLine(const ProgressState& s, double frames_per_second) {
  std::string line = Generation(s);
  if (!s.phase.empty() && s.phase_total > 0)
    line += fmt::format(", {} {}/{}", EscapeControl(s.phase), s.phase_done, s.phase_total);
  line += ", " + Frames(s) + ", " + Rate(frames_per_second);
  if (!std::isnan(s.best)) line += fmt::format(", {} {}", s.best_name, ScoreText(s.best));
  if (!s.trend.empty() && !std::isnan(s.peak)) line += ", peak " + ScoreText(s.peak);
  if (!std::isnan(s.elite)) line += ", elite " + ScoreText(s.elite);
  for (const auto& [name, text, plain, is_score] : s.numbers)
    if (plain) line += fmt::format(", {} {}", name, text);
  if (!s.stages.empty()) line += ", bottleneck " + EscapeControl(Bottleneck(s.stages));
  const char* title = ", last generation ";
  for (const auto& [name, seconds] : s.last_seconds) {
    line += fmt::format("{}{} {}", title, EscapeControl(name), PhaseSeconds(seconds));
    title = " + ";
  }
  if (s.respawns > 0) line += ", " + Respawns(s.respawns);
  line += ", " + DurationText(s.seconds);
  if (const double left = SecondsLeft(s, frames_per_second); !std::isnan(left))
    line += fmt::format(", {} left", DurationText(left));
  return line;
}

std::string ProgressJsonLine(const ProgressState& s, double frames_per_second) {
  const auto number = [](double value) {
    return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
  };
  const nlohmann::json progress = {{"step", Generation(s)},
                                   {"frames", s.frames},
                                   {"frames_per_second", number(frames_per_second)},
                                   {"seconds", number(s.seconds)},
                                   {"left", number(SecondsLeft(s, frames_per_second))},
                                   {"fraction", number(FractionDone(s, frames_per_second))},
                                   {"score", number(s.score)},
                                   {"peak", number(s.peak)},
                                   {"best", number(s.best)},
                                   {"trend", s.trend}};
  return nlohmann::json({{"progress", progress}}).dump();
}

namespace {

LiveOptions LiveOptionsOf(const ProgressOptions& options) {
  using Mode = ProgressOptions::Mode;
  const bool json = options.mode == Mode::kJson;
  return {.interval_s = options.interval_s,
          .interval_plain_s = json ? options.interval_s : options.interval_plain_s,
          .mode = options.mode == Mode::kDetect     ? LiveOptions::Mode::kDetect
                  : options.mode == Mode::kTerminal ? LiveOptions::Mode::kTerminal
                                                    : LiveOptions::Mode::kPlain};
}

Trend TrendOf(const std::vector<double>& scores) {
  Trend trend;
  for (const double score : scores) trend.Add(score);
  return trend;
}

double PeakOf(const std::vector<double>& scores) {
  return scores.empty() ? ProgressState::kUnknown : *std::ranges::max_element(scores);
}

}  // namespace

Progress::Progress(std::function<ProgressState()> snapshot, std::FILE* out,
                   const ProgressOptions& options)
    : snapshot_(std::move(snapshot)),
      json_(options.mode == ProgressOptions::Mode::kJson),
      trend_(TrendOf(options.earlier)),
      peak_(PeakOf(options.earlier)),
      lines_([this] { return Draw(); }, out, LiveOptionsOf(options)) {}

LivePicture Progress::Draw() {
  ProgressState state = snapshot_();
  const double rate = Rate(state);
  // a mark a generation, however long it takes; steps of learning are too short to be seen one by
  // one
  if (const int64_t step = state.pace ? state.scored : state.frames; step != marked_) {
    trend_.Add(state.score);
    marked_ = step;
  }
  state.trend = trend_.Sparkline();
  peak_ = std::fmax(peak_, state.score);
  state.peak = peak_;
  std::string plain = json_ ? ProgressJsonLine(state, rate) : ProgressPlainLine(state, rate);
  return {[state = std::move(state), rate](int columns, bool colour) {
            return ProgressLines(state, rate, columns, colour);
          },
          std::move(plain)};
}

// Frames per second over the last seconds; of the whole run so far when the window is empty.
double Progress::Rate(const ProgressState& state) {
  const SteadyTime now = Now();
  // a resume or a new generation never lowers frames; if it does, the window starts afresh
  if (!samples_.empty() && state.frames < samples_.back().second) samples_.clear();
  samples_.emplace_back(now, state.frames);
  const std::chrono::duration<double> window(kRateWindowSeconds);
  while (samples_.size() > 2 && now - samples_[1].first > window) samples_.pop_front();
  const auto& [start, frames] = samples_.front();
  const double seconds = std::chrono::duration<double>(now - start).count();
  if (seconds > 0.5) return static_cast<double>(state.frames - frames) / seconds;
  return state.seconds > 0 ? static_cast<double>(state.frames) / state.seconds : 0;
}

}  // namespace samara
