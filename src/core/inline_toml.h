// SPDX-License-Identifier: Apache-2.0 OR MIT
// Values of TOML in one line, canonical: `{"size" = 4, "names" = ["a", "b"]}`.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/toml.h"

namespace samara {

// A text as TOML and JSON quote it.
std::string QuoteToml(const std::string& text);
// The content of a TOML string, or a bare word itself. Nothing for what begins or ends with a
// quotation mark and is no TOML string: the mark may be meant as one, or as part of the text.
std::optional<std::string> UnquoteToml(std::string_view text);

// Nothing for what JSON has not: a date, a time, a number that is not finite.
std::optional<std::string> InlineToml(const toml::node& node);
std::optional<std::string> InlineJson(const toml::node& node);

// The whole text as a table; as a list of texts, which may also be "a,b".
std::optional<std::string> CanonicalTable(std::string_view text);
std::optional<std::string> CanonicalList(std::string_view text);
// A canonical table with `name` set to `value`: of TOML, or a bare word.
std::optional<std::string> WithEntry(const std::string& table, const std::string& name,
                                     std::string_view value);

}  // namespace samara
