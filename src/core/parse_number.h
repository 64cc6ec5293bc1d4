// SPDX-License-Identifier: Apache-2.0 OR MIT
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace samara {

// A number that is the whole text, as std::from_chars reads it: no sign but '-', no spaces, no
// words but "nan" and "inf" of floating point. None for any other text, and for what T cannot hold.
template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  T number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

}  // namespace samara
