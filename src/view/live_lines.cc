#include "view/live_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>

#include "core/log.h"
#include "view/terminal.h"
#include "view/text_line.h"

namespace samara {
namespace {

bool IsSet(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

// Prefix of warnings and errors in the log.
constexpr std::string_view kWarns = "samara: ";

}  // namespace

LiveLines::LiveLines(std::function<LivePicture()> draw, std::FILE* out, LiveOptions options)
    : draw_(std::move(draw)),
      out_(out),
      options_(options),
      terminal_(options.mode == LiveOptions::Mode::kTerminal ||
                (options.mode == LiveOptions::Mode::kDetect && IsTerminal(out))),
      cuts_(terminal_ || (options.mode == LiveOptions::Mode::kDetect &&
                          ColumnsOf(out) < std::numeric_limits<int>::max())),
      colour_(terminal_ && !IsSet("NO_COLOR")) {
  worker_ = std::make_unique<Thread>("live-view", [this] { Loop(); });
  if (cuts_) SetLogSink([this](std::string_view line) { Print(line); });
}

LiveLines::~LiveLines() {
  if (cuts_) SetLogSink({});
  {
    const MutexLock lock(mu_);
    stop_ = true;
  }
  stop_changed_.NotifyAll();
  worker_->Join();
  Tick(true);
}

void LiveLines::Loop() {
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

void LiveLines::Tick(bool last) {
  LivePicture picture = draw_();  // may wait for the run: never under mu_
  const MutexLock lock(mu_);
  picture_ = std::move(picture);
  const std::string text = terminal_ ? Redraw({}) : Cut(picture_.plain) + "\n";
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
  if (last) drawn_.clear();  // it stays on the screen
}

// One column stays free: some terminals wrap a line that is exactly full.
std::string LiveLines::Cut(std::string_view line) const {
  if (!cuts_) return std::string(line);
  return CutLine(line, std::max(SizeOfTerminal(out_).columns - 1, 1));
}

void LiveLines::Print(std::string_view line) {
  const MutexLock lock(mu_);
  std::string text = line.starts_with(kWarns) ? std::string(line) : Cut(line);
  text = terminal_ && picture_.lines ? Redraw(text) : text + "\n";
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
}

// One write: back to the top of the display, `above` (a line that scrolls away), the display again.
std::string LiveLines::Redraw(std::string_view above) {
  const TerminalSize size = SizeOfTerminal(out_);
  std::string text;
  // a terminal that became narrower has broken our lines into several rows each
  int rows = 0;
  for (int width : drawn_) rows += std::max(1, (width + size.columns - 1) / size.columns);
  if (rows > 0) text += fmt::format("\x1b[{}A", std::min(rows, size.rows - 1));
  text += '\r';
  if (!above.empty()) text += fmt::format("{}\x1b[K\n", above);
  // one column stays free: some terminals wrap a line that is exactly full
  std::vector<std::string> lines = picture_.lines(std::max(size.columns - 1, 1), colour_);
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
