// SPDX-License-Identifier: Apache-2.0 OR MIT
// Command lines that a person copies or a shell runs.
#pragma once

#include <string>

namespace samara {

// `text` as a POSIX shell reads it for one word: in quotation marks where it needs them.
std::string ShellWord(const std::string& text);

}  // namespace samara
