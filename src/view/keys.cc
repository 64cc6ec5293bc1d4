#include "view/keys.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "core/signals.h"

namespace samara {

Keys::Keys() {
  const bool ours = ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
  if (!ours || ::tcgetattr(STDIN_FILENO, &before_) != 0) return;
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // Ctrl-C stays a signal
  raw.c_cc[VMIN] = 1, raw.c_cc[VTIME] = 0;
  usable_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

Keys::~Keys() {
  if (usable_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

std::optional<char> Keys::Next(double seconds) const {
  pollfd polls[] = {{usable_ ? STDIN_FILENO : -1, POLLIN, 0}, {StopDescriptor(), POLLIN, 0}};
  const int ms = static_cast<int>(std::clamp(seconds, 0.0, 3600.0) * 1000);
  if (::poll(polls, 2, ms) <= 0 || (polls[0].revents & POLLIN) == 0) return std::nullopt;
  char key = 0;
  return ::read(STDIN_FILENO, &key, 1) == 1 ? std::optional(key) : std::nullopt;
}

}  // namespace samara
