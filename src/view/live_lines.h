// A display that goes on changing: lines redrawn in place on a terminal, one plain line at an
// interval anywhere else.
//
// Honours NO_COLOR and TERM=dumb, fits narrow and resized terminals. The cursor stays visible and
// no terminal mode outlives a single write, so nothing needs repair after a crash.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/mutex.h"
#include "core/thread.h"

namespace samara {

struct LiveOptions {
  double interval_s = 0.25;      // on a terminal
  double interval_plain_s = 10;  // elsewhere
  enum class Mode { kDetect, kTerminal, kPlain } mode = Mode::kDetect;
};

// The display until the next picture.
struct LivePicture {
  // Each line at most `columns` wide; escape sequences for colour take no width.
  std::function<std::vector<std::string>(int columns, bool colour)> lines;
  std::string plain;
};

// Owns its thread: neither copied nor moved. `draw` is called from that thread, and once more from
// the destructor's; it must not log. While it lives on a terminal, one that moves no cursor
// included, the process's log goes through it: warnings whole, other lines cut at the terminal's
// edge. At most one at a time.
class LiveLines {
 public:
  LiveLines(std::function<LivePicture()> draw, std::FILE* out, LiveOptions options = {});
  ~LiveLines();  // draws the last picture and leaves it standing
  LiveLines(const LiveLines&) = delete;
  LiveLines& operator=(const LiveLines&) = delete;

  // One line above the display; any thread.
  void Print(std::string_view line);

 private:
  void Loop();
  void Tick(bool last);
  std::string Redraw(std::string_view above) REQUIRES(mu_);
  std::string Cut(std::string_view line) const;

  // constant after construction
  const std::function<LivePicture()> draw_;
  std::FILE* const out_;
  const LiveOptions options_;
  const bool terminal_, cuts_, colour_;

  Mutex mu_;
  CondVar stop_changed_;
  // guarded by mu_
  bool stop_ GUARDED_BY(mu_) = false;
  LivePicture picture_ GUARDED_BY(mu_);
  std::vector<int> drawn_ GUARDED_BY(mu_);  // visible width of each line on the screen now

  std::unique_ptr<Thread> worker_;  // last: it uses everything above
};

}  // namespace samara
