// Keys as they are pressed, without waiting for Enter.
#pragma once

#include <termios.h>

#include <optional>

namespace samara {

// The terminal of standard input gives its keys one by one and shows none while this lives; without
// a terminal there are no keys. One thread. Not in the background: there is no key then, and the
// terminal stays as it is.
class Keys {
 public:
  Keys();
  ~Keys();
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;

  // The next key; waits `seconds` for it at most, and no longer when a stop is asked for
  // (core/signals.h).
  std::optional<char> Next(double seconds) const;

 private:
  bool usable_ = false;
  termios before_{};
};

}  // namespace samara
