// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/format.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>

namespace samara {
namespace {

constexpr const char* kNone = "\u2013";

}  // namespace

std::string Grouped(double value, int decimals) {
  if (std::isnan(value)) return kNone;
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (!std::isfinite(value)) return text;
  const size_t point = std::min(text.find('.'), text.size());
  const size_t first = text[0] == '-' ? 1 : 0;
  for (size_t at = point; at > first + 3;) text.insert(at -= 3, ",");
  return text;
}

std::string CountText(double count, std::string_view noun) {
  return fmt::format("{} {}{}", Grouped(count), noun, count == 1 ? "" : "s");
}

namespace {

using Suffixes = std::array<const char*, 5>;

std::string Shortened(double value, const Suffixes& suffixes) {
  double scaled = value;
  size_t suffix = 0;
  // 999.5 would print as 1000 with three digits: it belongs to the next suffix
  while (std::abs(scaled) >= 999.5 && suffix + 1 < suffixes.size()) scaled /= 1000, ++suffix;
  const double size = std::abs(scaled);
  const bool whole = suffix == 0 && scaled == std::round(scaled);
  const int decimals = whole || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", scaled, decimals, suffixes[suffix]);
}

}  // namespace

std::string ShortNumber(double value) {
  if (!std::isfinite(value)) return Grouped(value);
  return Shortened(value, {"", "k", "M", "B", "T"});
}

std::string ShortBytes(uint64_t bytes) {
  return Shortened(static_cast<double>(bytes), {"B", "kB", "MB", "GB", "TB"});
}

std::string ScoreText(double value) {
  const double size = std::abs(value);
  if (!std::isfinite(value) || size >= 1000 || (value == std::round(value) && size < 1e15))
    return Grouped(value);
  if (size >= 1) return fmt::format("{:.1f}", value);
  return fmt::format("{:.3g}", value);
}

std::string DurationText(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return kNone;
  if (seconds >= 1e12) return "ages";
  if (seconds >= 0.001 && seconds < 0.0995) return fmt::format("{:.2g} s", seconds);
  if (seconds >= 0.05 && seconds < 0.95) return fmt::format("{:.1f} s", seconds);
  const auto s = static_cast<int64_t>(std::lround(seconds));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02} min", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}:{:02}:{:02} h", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{} d {} h", s / 86400, s / 3600 % 24);
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
          out += "\uFFFD";
        else
          out += c;
    }
  }
  return out;
}

}  // namespace samara
