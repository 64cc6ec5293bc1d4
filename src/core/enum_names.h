// SPDX-License-Identifier: Apache-2.0 OR MIT
// Names of an enumeration's values, in one table, read both ways:
//
//   constexpr EnumName<Color> kColorNames[] = {{Color::kRed, "red"}, {Color::kBlue, "blue"}};
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "core/check.h"

namespace samara {

template <typename E>
struct EnumName {
  E value;
  std::string_view name;
};

template <typename E>
std::optional<E> ValueOf(std::span<const EnumName<E>> names, std::string_view name) {
  for (const auto& row : names)
    if (row.name == name) return row.value;
  return std::nullopt;
}

// REQUIRES: `value` is in the table.
template <typename E>
std::string_view NameOf(std::span<const EnumName<E>> names, E value) {
  for (const auto& row : names)
    if (row.value == value) return row.name;
  CHECK(false) << "a value without a name";
  return {};
}

}  // namespace samara
