// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/inline_toml.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/config.h"

namespace samara {
namespace {

std::optional<std::string> Number(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

// `is` stands between a name and its value.
std::optional<std::string> Inline(const toml::node& node, const char* is) {
  if (const auto* text = node.as_string()) return QuoteToml(text->get());
  if (const auto* integer = node.as_integer()) return std::to_string(integer->get());
  if (const auto* real = node.as_floating_point()) return Number(real->get());
  if (const auto* boolean = node.as_boolean()) return boolean->get() ? "true" : "false";
  std::string out;
  const auto add = [&](const std::string& before, const toml::node& value) {
    const auto text = Inline(value, is);
    if (text) out += (out.empty() ? "" : ", ") + before + *text;
    return text.has_value();
  };
  if (const auto* array = node.as_array()) {
    for (const toml::node& value : *array)
      if (!add("", value)) return std::nullopt;
    return "[" + out + "]";
  }
  const auto* table = node.as_table();
  if (table == nullptr) return std::nullopt;
  for (const auto& [name, value] : *table)
    if (!add(QuoteToml(std::string(name.str())) + is, value)) return std::nullopt;
  return "{" + out + "}";
}

// A value of TOML that is the whole text.
std::optional<std::string> WholeValue(std::string_view text, bool (toml::node::*is)() const) {
  const toml::parse_result parsed = toml::parse("value = " + std::string(text));
  if (!parsed || parsed.table().size() != 1) return std::nullopt;
  const toml::node& node = *parsed.table().get("value");
  return (node.*is)() ? InlineToml(node) : std::nullopt;
}

// The first comma outside of brackets; npos: none.
size_t CommaBetween(std::string_view words) {
  int open = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == '[' || words[i] == '{' || words[i] == '(') ++open;
    if (words[i] == ']' || words[i] == '}' || words[i] == ')') --open;
    if (words[i] == ',' && open <= 0) return i;
  }
  return std::string_view::npos;
}

// "a, b" -> ["a", "b"]
std::string ListOfWords(std::string_view words) {
  toml::array list;
  while (!words.empty()) {
    const size_t comma = std::min(CommaBetween(words), words.size());
    list.push_back(std::string(words.substr(0, comma)));
    words.remove_prefix(std::min(comma + 1, words.size()));
  }
  return *InlineToml(list);
}

bool HoldsTextsAlone(const std::string& list) {
  const toml::parse_result parsed = toml::parse("value = " + list);
  const toml::array& array = *parsed.table()["value"].as_array();
  return std::all_of(array.begin(), array.end(), [](const auto& node) { return node.is_string(); });
}

}  // namespace

std::string QuoteToml(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (const auto byte = static_cast<unsigned char>(c); byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04x}", static_cast<int>(byte));
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::optional<std::string> UnquoteToml(std::string_view text) {
  const auto mark = [](char c) { return c == '"' || c == '\''; };
  if (text.empty() || (!mark(text.front()) && !mark(text.back()))) return std::string(text);
  constexpr std::string_view kKey = "text = ";
  const toml::parse_result parsed = toml::parse(std::string(kKey) + std::string(text));
  if (!parsed || parsed.table().size() != 1) return std::nullopt;
  const auto value = parsed.table()["text"];
  const toml::source_position end = value.node()->source().end;  // before a comment
  const auto characters = std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; });
  if (end.line != 1 || end.column != kKey.size() + 1 + static_cast<size_t>(characters))
    return std::nullopt;
  return value.value<std::string>();
}

std::optional<std::string> InlineToml(const toml::node& node) { return Inline(node, " = "); }
std::optional<std::string> InlineJson(const toml::node& node) { return Inline(node, ": "); }

std::optional<std::string> CanonicalTable(std::string_view text) {
  return WholeValue(text, &toml::node::is_table);
}

std::optional<std::string> CanonicalList(std::string_view text) {
  const bool words = !text.starts_with('[');
  auto list = WholeValue(words ? ListOfWords(text) : text, &toml::node::is_array);
  return list && HoldsTextsAlone(*list) ? list : std::nullopt;
}

std::optional<std::string> WithEntry(const std::string& table, const std::string& name,
                                     std::string_view value) {
  toml::table entries = *toml::parse("value = " + table).table()["value"].as_table();
  // Python's words, which as texts would be true
  if (value == "None") return std::nullopt;
  if (value == "True" || value == "False") value = value == "True" ? "true" : "false";
  toml::parse_result parsed = toml::parse("value = " + std::string(value));
  if (parsed && parsed.table().size() == 1) {
    entries.insert_or_assign(name, *parsed.table().get("value"));
  } else {
    const auto word = UnquoteToml(value);
    if (!word || !toml::parse("value = " + QuoteToml(*word))) return std::nullopt;
    entries.insert_or_assign(name, *word);
  }
  return InlineToml(entries);
}

std::string JsonOf(const std::string& value) {
  return *InlineJson(*toml::parse("value = " + value).table().get("value"));
}

}  // namespace samara
