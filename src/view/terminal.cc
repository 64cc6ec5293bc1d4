#include "view/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>
#include <string_view>

namespace samara {

TerminalSize SizeOfTerminal(std::FILE* out) {
  winsize w = {};
  if (::ioctl(fileno(out), TIOCGWINSZ, &w) != 0 || w.ws_col == 0 || w.ws_row == 0) return {};
  return {w.ws_row, w.ws_col};
}

bool IsTerminal(std::FILE* out) {
  const char* term = std::getenv("TERM");
  return ::isatty(fileno(out)) != 0 && term != nullptr && *term != '\0' &&
         std::string_view(term) != "dumb";
}

int ColumnsOf(std::FILE* out) {
  return ::isatty(fileno(out)) != 0 ? SizeOfTerminal(out).columns : std::numeric_limits<int>::max();
}

}  // namespace samara
