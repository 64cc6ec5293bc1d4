#include "view/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/format.h"
#include "core/log.h"
#include "view/terminal.h"

namespace samara {
namespace {

constexpr double kRateWindowSeconds = 15;
constexpr int kBarWidthMax = 40;

bool IsSet(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

// A line under construction that knows its visible width and stops at `columns`.
class Line {
 public:
  Line(int columns, bool colour) : room_(columns), colour_(colour) {}
  // `style` is an SGR parameter such as "1" or "2;32"; empty for none.
  void Add(std::string_view text, std::string_view style = {}) {
    if (room_ <= 0 || text.empty()) return;
    const bool styled = colour_ && !style.empty();
    if (styled) text_ += fmt::format("\x1b[{}m", style);
    for (size_t i = 0; i < text.size();) {
      // one code point = one column: all our texts are plain letters and block elements
      size_t next = i + 1;
      while (next < text.size() && (static_cast<unsigned char>(text[next]) & 0xC0) == 0x80) ++next;
      if (room_-- <= 0) break;
      text_ += text.substr(i, next - i);
      i = next;
    }
    room_ = std::max(room_, 0);
    if (styled) text_ += "\x1b[0m";
  }
  int room() const { return room_; }
  std::string Take() { return std::move(text_); }

  static constexpr std::string_view kDim = "2", kBold = "1", kGood = "32", kBinds = "33";

 private:
  int room_;
  bool colour_;
  std::string text_;
};

// Items separated by dots, on as many lines as they need.
class Flow {
 public:
  Flow(int columns, bool colour) : columns_(columns), colour_(colour), line_(columns, colour) {}
  // "name value", either may be empty.
  void Item(std::string_view name, std::string_view value, std::string_view style = {}) {
    const int width = CodePoints(name) + CodePoints(value) + (name.empty() ? 0 : 1);
    if (!empty_ && width + 3 > line_.room()) {
      lines_.push_back(line_.Take());
      line_ = Line(columns_, colour_);
      empty_ = true;
    }
    if (!empty_) line_.Add(" \u00b7 ", Line::kDim);
    line_.Add(name, Line::kDim);
    if (!name.empty()) line_.Add(" ");
    line_.Add(value, style);
    empty_ = false;
  }
  void AppendTo(std::vector<std::string>& lines) {
    if (!empty_) lines_.push_back(line_.Take());
    for (std::string& line : lines_) lines.push_back(std::move(line));
  }

 private:
  static int CodePoints(std::string_view text) {
    return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    }));
  }
  const int columns_;
  const bool colour_;
  bool empty_ = true;
  Line line_;
  std::vector<std::string> lines_;
};

// Columns a line takes on the screen: code points outside escape sequences.
int VisibleWidth(std::string_view line) {
  int width = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') {
      while (i < line.size() && line[i] != 'm') ++i;
    } else if ((static_cast<unsigned char>(line[i]) & 0xC0) != 0x80) {
      ++width;
    }
  }
  return width;
}

std::string Bar(double fraction, int width) {
  static constexpr const char* kEighths[] = {"",       "\u258f", "\u258e", "\u258d",
                                             "\u258c", "\u258b", "\u258a", "\u2589"};
  const int eighths = static_cast<int>(std::lround(std::clamp(fraction, 0.0, 1.0) * width * 8));
  std::string bar;
  for (int i = 0; i < eighths / 8; ++i) bar += "\u2588";
  bar += kEighths[eighths % 8];
  for (int i = (eighths + 7) / 8; i < width; ++i) bar += ' ';
  return bar;
}

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

std::string Respawns(int64_t n) { return fmt::format("{} respawn{}", n, n == 1 ? "" : "s"); }

void AddNumbers(const ProgressState& s, double frames_per_second, Flow& flow) {
  flow.Item("", Generation(s), Line::kBold);
  flow.Item("", Frames(s));
  flow.Item("", Rate(frames_per_second));
  flow.Item("elapsed", DurationText(s.seconds));
  if (const double left = SecondsLeft(s, frames_per_second); !std::isnan(left))
    flow.Item("left", DurationText(left));
  if (s.respawns > 0) flow.Item("", Respawns(s.respawns), Line::kBinds);
}

void AddScores(const ProgressState& s, Flow& flow) {
  const auto score = [&](const char* name, double value, std::string_view style) {
    if (!std::isnan(value)) flow.Item(name, ScoreText(value), style);
  };
  score("best", s.best, Line::kBold);
  score("elite", s.elite, "1;32");
  score("random policy", s.random, {});
  for (const auto& [name, text, plain] : s.numbers) flow.Item(name, text, Line::kBold);
  if (!s.trend.empty()) flow.Item("trend", s.trend, Line::kGood);
}

void AddStages(const ProgressState& s, Flow& flow) {
  const std::string binding = Bottleneck(s.stages);
  const char* title = s.stages_title;
  for (const auto& [name, share] : s.stages) {
    const bool binds = name == binding;
    flow.Item(title + EscapeControl(name),
              fmt::format("{:.0f} %{}", 100 * share, binds ? " (bottleneck)" : ""),
              binds ? Line::kBinds : "");
    title = "";
  }
}

// "18.2 s"; from a minute on, whole seconds say enough.
std::string PhaseSeconds(double seconds) {
  return seconds < 60 ? fmt::format("{:.{}f} s", seconds, seconds < 1 ? 2 : 1)
                      : DurationText(seconds);
}

void AddLastGeneration(const ProgressState& s, Flow& flow) {
  const char* title = "last: ";
  for (const auto& [name, seconds] : s.last_seconds) {
    flow.Item(title + EscapeControl(name), PhaseSeconds(seconds));
    title = "";
  }
}

std::string PhaseLine(const ProgressState& s, int columns, bool colour) {
  Line line(columns, colour);
  const std::string count = fmt::format(" {} of {}", s.phase_done, s.phase_total);
  line.Add(fmt::format("{:<10} ", EscapeControl(s.phase)), Line::kDim);
  const int width = std::min(kBarWidthMax, line.room() - static_cast<int>(count.size()) - 2);
  if (width >= 4) {
    line.Add("\u2595", Line::kDim);
    line.Add(Bar(PhaseFraction(s), width), Line::kGood);
    line.Add("\u258f", Line::kDim);
  }
  line.Add(count);
  return line.Take();
}

}  // namespace

namespace {

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

}  // namespace

double SecondsLeft(const ProgressState& s, double frames_per_second) {
  if (s.pace) return SecondsOfGenerations(s, *s.pace);
  double left = std::numeric_limits<double>::infinity();
  if (s.frames_budget > 0 && frames_per_second > 0)
    left =
        static_cast<double>(std::max<int64_t>(s.frames_budget - s.frames, 0)) / frames_per_second;
  if (s.seconds_budget > 0) left = std::min(left, std::max(s.seconds_budget - s.seconds, 0.0));
  return std::isinf(left) ? ProgressState::kUnknown : left;
}

std::vector<std::string> ProgressLines(const ProgressState& s, double frames_per_second,
                                       int columns, bool colour) {
  std::vector<std::string> lines;
  Line title(columns, colour);
  title.Add(EscapeControl(s.title), Line::kBold);
  lines.push_back(title.Take());

  const auto flow = [&](auto add) {
    Flow items(columns, colour);
    add(items);
    items.AppendTo(lines);
  };
  flow([&](Flow& items) { AddNumbers(s, frames_per_second, items); });
  if (!s.phase.empty() && s.phase_total > 0) lines.push_back(PhaseLine(s, columns, colour));
  flow([&](Flow& items) { AddScores(s, items); });
  flow([&](Flow& items) { AddLastGeneration(s, items); });
  flow([&](Flow& items) { AddStages(s, items); });
  return lines;
}

std::string ProgressPlainLine(const ProgressState& s, double frames_per_second) {
  std::string line = Generation(s);
  if (!s.phase.empty() && s.phase_total > 0)
    line += fmt::format(", {} {}/{}", EscapeControl(s.phase), s.phase_done, s.phase_total);
  line += ", " + Frames(s) + ", " + Rate(frames_per_second);
  if (!std::isnan(s.best)) line += ", best " + ScoreText(s.best);
  if (!std::isnan(s.elite)) line += ", elite " + ScoreText(s.elite);
  for (const auto& [name, text, plain] : s.numbers)
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

Progress::Progress(std::function<ProgressState()> snapshot, std::FILE* out, ProgressOptions options)
    : snapshot_(std::move(snapshot)),
      out_(out),
      options_(options),
      terminal_(options.mode == ProgressOptions::Mode::kTerminal ||
                (options.mode == ProgressOptions::Mode::kDetect && IsTerminal(out))),
      colour_(terminal_ && !IsSet("NO_COLOR")) {
  worker_ = std::make_unique<Thread>("progress", [this] { Loop(); });
  if (terminal_) SetLogSink([this](std::string_view line) { Print(line); });
}

Progress::~Progress() {
  if (terminal_) SetLogSink({});
  {
    const MutexLock lock(mu_);
    stop_ = true;
  }
  stop_changed_.NotifyAll();
  worker_->Join();
  Tick(true);
}

void Progress::Loop() {
  const std::chrono::duration<double> interval(terminal_ ? options_.interval_s
                                                         : options_.interval_plain_s);
  if (terminal_) Tick(false);
  MutexLock lock(mu_);
  while (!stop_changed_.WaitFor(mu_, interval, [this]() REQUIRES(mu_) { return stop_; })) {
    lock.Unlock();
    Tick(false);
    lock.Lock();
  }
}

void Progress::Tick(bool last) {
  ProgressState state = snapshot_();  // may wait for the run: never under mu_
  const double rate = Rate(state);
  trend_.Add(state.score);
  state.trend = trend_.Sparkline();
  const MutexLock lock(mu_);
  state_ = std::move(state);
  rate_ = rate;
  have_state_ = true;
  const std::string text = terminal_ ? Redraw({}) : ProgressPlainLine(state_, rate_) + "\n";
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
  if (last) drawn_.clear();  // it stays on the screen
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

void Progress::Print(std::string_view line) {
  const MutexLock lock(mu_);
  const std::string text = terminal_ && have_state_ ? Redraw(line) : std::string(line) + "\n";
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
}

// One write: back to the top of the display, `above` (a line that scrolls away), the display again.
std::string Progress::Redraw(std::string_view above) {
  const TerminalSize size = SizeOfTerminal(out_);
  std::string text;
  // a terminal that became narrower has broken our lines into several rows each
  int rows = 0;
  for (int width : drawn_) rows += std::max(1, (width + size.columns - 1) / size.columns);
  if (rows > 0) text += fmt::format("\x1b[{}A", std::min(rows, size.rows - 1));
  text += '\r';
  if (!above.empty()) text += fmt::format("{}\x1b[K\n", above);
  // one column stays free: some terminals wrap a line that is exactly full
  std::vector<std::string> lines =
      ProgressLines(state_, rate_, std::max(size.columns - 1, 1), colour_);
  if (static_cast<int>(lines.size()) > size.rows - 1)
    lines.resize(static_cast<size_t>(std::max(size.rows - 1, 0)));
  drawn_.clear();
  for (const std::string& line : lines) {
    text += line + "\x1b[K\n";
    drawn_.push_back(VisibleWidth(line));
  }
  return text + "\x1b[J";
}

}  // namespace samara
