// SPDX-License-Identifier: Apache-2.0 OR MIT
// One log for the process: lines to standard error and, once attached, to the run folder's log.txt.
// Thread safe. Never logs what a peer sent without escaping control characters.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "core/files.h"
#include "core/status.h"

namespace samara {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
void Log(LogLevel level, std::string_view line);
inline void LogInfo(std::string_view line) { Log(LogLevel::kInfo, line); }
inline void LogWarning(std::string_view line) { Log(LogLevel::kWarning, line); }
inline void LogError(std::string_view line) { Log(LogLevel::kError, line); }
// Lowest level that reaches standard error (the file takes everything).
void SetLogLevel(LogLevel level);
// Also appends every line to `file` until the process ends. Fails as AppendFile::Open does, and
// then no file has them; a line that cannot be written later is dropped.
Status AttachLogFile(const RootedPath& file);
// Lines meant for standard error go to `sink` instead, one complete line a call and never two at a
// time (a live display prints them above itself); empty: back to standard error. The sink must not
// log. When this returns, the previous sink is no longer in use.
void SetLogSink(std::function<void(std::string_view)> sink);
// Replaces control characters by \xNN so that foreign text stays on its line.
std::string EscapeControl(std::string_view text);
// The beginning and the end of `text` with the number of bytes left out between them, when it is
// longer than `bytes_max`; otherwise `text`. Cuts no UTF-8 character.
std::string Shorten(std::string_view text, size_t bytes_max);
// A value that a user, a file or a peer gave, as every message quotes it: escaped, at most some 100
// bytes.
std::string Shown(std::string_view given);
// At most so much of a message is printed, whatever it quotes.
inline constexpr size_t kMessageBytesMax = 2000;

}  // namespace samara
