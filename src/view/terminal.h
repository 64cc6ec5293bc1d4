// Functions of a terminal for the live display and the terminal view.
#pragma once

#include <cstdio>

namespace samara {

struct TerminalSize {
  int rows = 24, columns = 80;
};

// The size now, or 24 x 80 when it cannot be known.
TerminalSize SizeOfTerminal(std::FILE* out);
// Columns that lines have on `out`; where it is no terminal, of whatever kind, they have no end.
int ColumnsOf(std::FILE* out);
// A terminal that understands cursor movement: a tty, and TERM is set and not "dumb".
bool IsTerminal(std::FILE* out);

}  // namespace samara
