// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/log.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "core/clock.h"
#include "core/message.h"
#include "core/mutex.h"

namespace samara {
namespace {

Mutex mu;
// guarded by mu
AppendFile* file GUARDED_BY(mu) =
    nullptr;  // never destroyed: threads may log until the process ends
LogLevel level_min GUARDED_BY(mu) = LogLevel::kInfo;
std::function<void(std::string_view)> sink;

const char* Tag(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "?";
}

}  // namespace

void Log(LogLevel level, std::string_view line) {
  const std::string safe = ShownMessage(line);
  const MutexLock lock(mu);
  if (level >= level_min) {
    const std::string shown =
        level >= LogLevel::kWarning ? std::string("samara: ") + Tag(level) + ": " + safe : safe;
    if (sink)
      sink(shown);
    else
      std::fprintf(stderr, "%s\n", shown.c_str());
  }
  if (file != nullptr) {
    (void)file->Append(WallTimeIso() + " " + Tag(level) + " " + safe + "\n");
  }
}

void SetLogLevel(LogLevel level) {
  const MutexLock lock(mu);
  level_min = level;
}

void SetLogSink(std::function<void(std::string_view)> new_sink) {
  const MutexLock lock(mu);
  sink = std::move(new_sink);
}

Status AttachLogFile(const RootedPath& path) {
  auto opened = AppendFile::Open(path, -1, AppendFile::Durability::kBuffered);
  const MutexLock lock(mu);
  delete std::exchange(file, opened.ok() ? opened->release() : nullptr);
  return opened.status();
}

std::string EscapeControl(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f)
      out += c;
    else
      out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return out;
}

std::string Shorten(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return std::string(text);
  const auto continues = [&](size_t i) { return (static_cast<uint8_t>(text[i]) & 0xc0) == 0x80; };
  size_t begin = bytes_max / 3 * 2, end = text.size() - bytes_max / 3;
  while (begin > 0 && continues(begin)) --begin;
  while (end < text.size() && continues(end)) ++end;
  return std::string(text.substr(0, begin)) + "...(" + std::to_string(end - begin) +
         " bytes more)..." + std::string(text.substr(end));
}

std::string ShownMessage(std::string_view message) {
  std::string shown;
  for (size_t at = 0; at < message.size();) {
    const size_t end = std::min(message.find(' ', at), message.size());
    shown += Shorten(message.substr(at, end - at), kWordBytesMax);
    if (end < message.size()) shown += ' ';
    at = end + 1;
  }
  return EscapeControl(Shorten(shown, kMessageBytesMax));
}

std::string Shown(std::string_view given) { return EscapeControl(Shorten(given, 99)); }

}  // namespace samara
