// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/shell.h"

namespace samara {

std::string ShellWord(const std::string& text) {
  constexpr const char* kSpecial = " \t\n\"'\\$`&|;<>()*?[]{}~#!";
  if (!text.empty() && text.find_first_of(kSpecial) == text.npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace samara
