// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>

#include "core/inline_toml.h"
#include "core/log.h"
#include "core/parse_number.h"
#include "core/sha256.h"
#include "core/suggestion.h"
#include "core/toml.h"

namespace samara {
namespace {

Status Bad(std::string_view key, std::string_view given, const std::string& expected) {
  return {Code::kConfig, fmt::format("{}={}: expected {}", key, Shown(given), expected)};
}

std::string RangeText(Range range, bool integer) {
  const auto show = [&](double v) {
    return integer ? fmt::format("{:.0f}", v) : fmt::format("{}", v);
  };
  const bool low = std::isfinite(range.min), high = std::isfinite(range.max);
  if (low && high) return show(range.min) + " to " + show(range.max);
  if (low) return "at least " + show(range.min);
  if (high) return "at most " + show(range.max);
  return {};
}

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// A number as ParseNumber reads it, of one as TOML has it: with a sign, and with underscores
// between digits. Empty for what has them elsewhere.
std::string PlainNumber(std::string_view text) {
  std::string out;
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const auto digit = [&](size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_')
      out += text[i];
    else if (i == 0 || !digit(i - 1) || !digit(i + 1))
      return {};
  }
  return out;
}

// An integer as it is written, or a whole number with an exponent (24e6, 1.5e3), by its digits.
std::optional<int64_t> WholeNumber(std::string_view given) {
  const std::string text = PlainNumber(given);
  const size_t e = text.find_first_of("eE");
  if (e == std::string::npos) return ParseNumber<int64_t>(text);
  const auto digit_before = [&text](size_t i) {
    return i > 0 && std::isdigit(static_cast<unsigned char>(text[i - 1])) != 0;
  };
  const auto exponent = ParseNumber<int32_t>(text.substr(text[e + 1] == '+' ? e + 2 : e + 1));
  if (!exponent || !digit_before(e)) return std::nullopt;
  int64_t shift = *exponent;
  std::string digits = text.substr(0, e);
  if (const size_t point = digits.find('.'); point != std::string::npos) {
    if (!digit_before(point)) return std::nullopt;
    shift -= static_cast<int64_t>(digits.size() - point - 1);
    digits.erase(point, 1);
  }
  for (; shift < 0 && digits.size() > 1 && digits.back() == '0'; ++shift) digits.pop_back();
  constexpr int64_t kDigits = 19;  // of the largest integer
  if (shift < 0 || shift > kDigits) return std::nullopt;
  return ParseNumber<int64_t>(digits.append(static_cast<size_t>(shift), '0'));
}

// None for what is no number of the range. -0.0 is below 0 too; where negative numbers are allowed
// it is 0, so that it hashes like it.
std::optional<double> NumberIn(Range range, std::string_view given) {
  const std::optional<double> parsed = ParseNumber<double>(PlainNumber(given));
  if (!parsed || !std::isfinite(*parsed) || *parsed < range.min || *parsed > range.max ||
      (std::signbit(*parsed) && range.min >= 0))
    return std::nullopt;
  return *parsed == 0 ? 0 : *parsed;
}

// The shortest text that reads back to the same bits; a point keeps it a TOML float.
std::string NumberText(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string Join(const std::vector<std::string>& words, const char* separator) {
  std::string out;
  for (const auto& word : words) out += (out.empty() ? "" : separator) + word;
  return out;
}

}  // namespace

void ConfigTable::Add(const std::string& key, int64_t* value, Range range, std::string unit,
                      std::string help, OnResume on_resume) {
  const std::string expected = "an integer " + RangeText(range, true);
  auto set = [=](std::string_view given) -> Status {
    const std::optional<int64_t> parsed = WholeNumber(given);
    const auto real = static_cast<double>(parsed.value_or(0));
    if (!parsed || real < range.min || real > range.max) return Bad(key, given, expected);
    *value = *parsed;
    return Status::Ok();
  };
  auto get = [value] { return std::to_string(*value); };
  fields_.push_back({key, "integer", RangeText(range, true), std::move(unit), get(),
                     std::move(help), on_resume, std::move(set), std::move(get)});
}

void ConfigTable::Add(const std::string& key, double* value, Range range, std::string unit,
                      std::string help, OnResume on_resume) {
  const std::string expected = "a number " + RangeText(range, false);
  auto set = [=](std::string_view given) -> Status {
    const std::optional<double> number = NumberIn(range, given);
    if (!number) return Bad(key, given, expected);
    *value = *number;
    return Status::Ok();
  };
  auto get = [value] { return NumberText(*value); };
  fields_.push_back({key, "number", RangeText(range, false), std::move(unit), get(),
                     std::move(help), on_resume, std::move(set), std::move(get)});
}

void ConfigTable::Add(const std::string& key, std::optional<double>* value, Range range,
                      std::string unit, std::string help, OnResume on_resume) {
  std::string expected = "a number ";
  if (const std::string bounds = RangeText(range, false); !bounds.empty())
    expected += bounds + ", ";
  expected += "or none";
  auto set = [=](std::string_view given) -> Status {
    const std::string text = UnquoteToml(given).value_or("");
    const std::optional<double> number = NumberIn(range, text);
    if (!number && text != "none") return Bad(key, given, expected);
    *value = number;
    return Status::Ok();
  };
  auto get = [value] { return *value ? NumberText(**value) : "\"none\""; };
  fields_.push_back({key, "number or none", RangeText(range, false), std::move(unit), get(),
                     std::move(help), on_resume, std::move(set), std::move(get)});
}

void ConfigTable::Add(const std::string& key, bool* value, std::string help, OnResume on_resume) {
  auto set = [=](std::string_view given) -> Status {
    if (given != "true" && given != "false") return Bad(key, given, "true or false");
    *value = given == "true";
    return Status::Ok();
  };
  auto get = [value] { return std::string(*value ? "true" : "false"); };
  fields_.push_back(
      {key, "boolean", "", "", get(), std::move(help), on_resume, std::move(set), std::move(get)});
}

void ConfigTable::Add(const std::string& key, std::string* value,
                      const std::vector<std::string>& choices, std::string help,
                      OnResume on_resume) {
  AddText(
      key, choices, std::move(help), on_resume, [value](const std::string& text) { *value = text; },
      [value] { return *value; });
}

void ConfigTable::AddText(const std::string& key, const std::vector<std::string>& choices,
                          std::string help, OnResume on_resume,
                          const std::function<void(const std::string&)>& store,
                          std::function<std::string()> load) {
  auto set = [=](std::string_view given) -> Status {
    std::optional<std::string> unquoted = UnquoteToml(given);
    if (!unquoted)
      return Bad(key, given, "a bare word, or text between two quotation marks as TOML has it");
    std::string text = std::move(*unquoted);
    if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end()) {
      return Bad(
          key, given,
          fmt::format("one of {} (nearest: {})", Join(choices, ", "), Nearest(text, choices)));
    }
    if (std::any_of(text.begin(), text.end(), IsControl))
      return Bad(key, "(text)", "text without control characters");
    // what config.toml could not give back, such as bytes that are no UTF-8
    if (!toml::parse("text = " + QuoteToml(text)))
      return Bad(key, "(text)", "text in UTF-8 without control characters");
    store(text);
    return Status::Ok();
  };
  auto get = [load = std::move(load)] { return QuoteToml(load()); };
  const std::string type = choices.empty() ? "text" : "one of " + Join(choices, "|");
  fields_.push_back(
      {key, type, "", "", get(), std::move(help), on_resume, std::move(set), std::move(get)});
}

void ConfigTable::AddTable(const std::string& key, std::string* value, std::string help,
                           OnResume on_resume) {
  auto set = [=](std::string_view given) -> Status {
    const auto table = CanonicalTable(given);
    if (!table)
      return Bad(key, given,
                 "a table such as {size = 4, mode = \"hard\"}, without dates, nan, inf");
    *value = *table;
    return Status::Ok();
  };
  fields_.push_back({key, "table", "", "", *value, std::move(help), on_resume, std::move(set),
                     [value] { return *value; }});
}

void ConfigTable::AddList(const std::string& key, std::string* value, std::string help,
                          OnResume on_resume) {
  auto set = [=](std::string_view given) -> Status {
    const auto list = CanonicalList(given);
    if (!list)
      return Bad(key, given, "a list of texts such as [\"a\", \"b\"], or words between commas");
    *value = *list;
    return Status::Ok();
  };
  fields_.push_back({key, "list", "", "", *value, std::move(help), on_resume, std::move(set),
                     [value] { return *value; }});
}

void ConfigTable::AddElsewhere(std::string key, std::string whose) {
  elsewhere_.emplace(std::move(key), std::move(whose));
}

void ConfigTable::AddFormer(const std::string& former, std::string key, std::string advice,
                            std::function<std::string(std::string_view)> convert) {
  former_[former] = {std::move(key), std::move(advice), std::move(convert)};
}

void ConfigTable::AddFormerDefault(const std::string& key, std::string former) {
  former_defaults_[key] = std::move(former);
}

void ConfigTable::AddFormerValue(const std::string& key, const std::string& former,
                                 std::string value) {
  former_values_[key][former] = std::move(value);
}

const ConfigField* ConfigTable::Find(std::string_view key) const {
  const auto it =
      std::find_if(fields_.begin(), fields_.end(), [&](const auto& f) { return f.key == key; });
  return it == fields_.end() ? nullptr : &*it;
}

std::pair<const ConfigField*, std::string> ConfigTable::FindEntry(std::string_view key) const {
  const size_t dot = std::min(key.rfind('.'), key.size());
  const ConfigField* field = Find(key.substr(0, dot));
  if (field == nullptr || field->type != "table" || dot + 1 >= key.size()) return {};
  return {field, std::string(key.substr(dot + 1))};
}

Status ConfigTable::Set(std::string_view key, std::string_view value) {
  if (const ConfigField* field = Find(key)) {
    const auto values = former_values_.find(key);
    if (values == former_values_.end()) return field->set(value);
    const auto now = values->second.find(UnquoteToml(value).value_or(""));
    return field->set(now == values->second.end() ? value : now->second);
  }
  if (const auto [field, name] = FindEntry(key); field != nullptr) {
    const auto table = WithEntry(field->get(), name, value);
    return table ? field->set(*table)
                 : Bad(key, value,
                       "a value of TOML without dates, nan, inf, or a bare word other than None");
  }
  if (const auto former = former_.find(key); former != former_.end())
    return {Code::kConfig, fmt::format("{} was renamed: set {}, {}", key, former->second.key,
                                       former->second.advice)};
  if (const auto other = elsewhere_.find(key); other != elsewhere_.end())
    return {Code::kConfig, fmt::format("{} belongs to {}", key, other->second)};
  std::vector<std::string> keys;
  for (const auto& field : fields_) keys.push_back(field.key);
  const std::string meant = SuggestedKey(key, keys);
  return {Code::kConfig, fmt::format("{}: unknown key{} ('samara list keys' shows all)", Shown(key),
                                     meant.empty() ? "" : "; the nearest known one is " + meant)};
}

Status ConfigTable::Override(std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return {Code::kConfig, fmt::format("{}: expected table.key=value", Shown(assignment))};
  }
  return Set(assignment.substr(0, equals), assignment.substr(equals + 1));
}

namespace {

std::string_view LineAt(std::string_view text, size_t number) {
  for (; number > 1 && !text.empty(); --number)
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  return text.substr(0, text.find_first_of("\r\n"));
}

// A value as it is written: a number that a double would round, such as 1e-400, is the same here
// as in an override. Positions count characters from 1.
std::string_view Written(std::string_view text, const toml::source_region& where) {
  const std::string_view line = LineAt(text, where.begin.line);
  size_t column = 0, begin = line.size(), end = line.size();
  for (size_t i = 0; i < line.size(); ++i) {
    if ((static_cast<uint8_t>(line[i]) & 0xc0) == 0x80) continue;  // within a character
    ++column;
    if (column == where.begin.column) begin = i;
    if (column == where.end.column) end = i;
  }
  return line.substr(begin, end - begin);
}

// Describes the error in a file that is no TOML.
std::string Problem(std::string_view text, const toml::parse_error& error) {
  const std::string_view line = LineAt(text, error.source().begin.line);
  const size_t equals = line.find('=');
  const size_t word = equals == line.npos ? line.npos : line.find_first_not_of(" \t", equals + 1);
  const std::string_view value = word == line.npos ? "" : line.substr(word);
  const bool bare = !value.empty() && std::isalpha(static_cast<unsigned char>(value[0])) &&
                    !value.starts_with("true") && !value.starts_with("false");
  // the one mistake that the parser does not name
  if (bare) return Shown(line) + ": expected a number, true, false, or text in quotation marks";
  return Shown(error.description());
}

bool HoldsText(const ConfigField& field) {
  return field.type == "text" || field.type.starts_with("one of");
}

bool HoldsSeveral(const ConfigField& field) {
  return field.type == "table" || field.type == "list";
}

}  // namespace

Status ConfigTable::ParseToml(std::string_view text, const std::string& source, Origin origin) {
  if (text.size() > (1 << 20)) return {Code::kConfig, source + ": larger than 1 MiB"};
  const toml::parse_result root = toml::parse(text);
  if (!root) {
    return {Code::kConfig, fmt::format("{}:{}: {}", source, root.error().source().begin.line,
                                       Problem(text, root.error()))};
  }
  bool empty = true;
  for (const auto& [name, node] : root.table()) {
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      return {Code::kConfig, fmt::format("{}: {}: expected a table such as [run] around the keys",
                                         source, Shown(name.str()))};
    }
    for (const auto& [key, value] : *table) {
      std::string full = fmt::format("{}.{}", name.str(), key.str());
      std::string scalar;
      if (const auto* s = value.as_string())
        scalar = QuoteToml(s->get());
      else if (const auto* i = value.as_integer())
        scalar = std::to_string(i->get());
      else if (value.is_floating_point())
        scalar = Written(text, value.source());
      else if (const auto* b = value.as_boolean())
        scalar = b->get() ? "true" : "false";
      else if (const ConfigField* field = Find(full); field != nullptr && HoldsSeveral(*field))
        scalar = InlineToml(value).value_or("a date, nan or inf");
      else
        return {Code::kConfig,
                fmt::format("{}: {}: expected one text, number or boolean", source, Shown(full))};
      if (const auto former = former_.find(full);
          former != former_.end() && origin == Origin::kRecorded)
        full = former->second.key, scalar = former->second.convert(scalar);
      if (const ConfigField* field = Find(full);
          field != nullptr && HoldsText(*field) && !value.is_string())
        return Bad(full, scalar, "text in quotation marks").Annotate(source);
      RETURN_IF_ERROR(Set(full, scalar).Annotate(source));
      empty = false;
    }
  }
  if (!empty) return Status::Ok();
  return {Code::kConfig, source +
                             ": empty; expected tables such as [run] with keys in them "
                             "('samara list keys' shows all)"};
}

std::string TextIn(std::string_view text, std::string_view key) {
  const toml::parse_result root = toml::parse(text);
  if (!root) return {};
  const size_t dot = key.find('.');
  const auto value = root.table()[key.substr(0, dot)][key.substr(dot + 1)].value<std::string>();
  return value.value_or("");
}

std::string ConfigTable::ToToml() const {
  // fields of one table stand together in the order they were added
  std::vector<std::string> tables;
  for (const auto& field : fields_) {
    const std::string table = field.key.substr(0, field.key.find('.'));
    if (std::find(tables.begin(), tables.end(), table) == tables.end()) tables.push_back(table);
  }
  std::string text;
  for (const auto& table : tables) {
    text += "[" + table + "]\n";
    for (const auto& field : fields_) {
      const size_t dot = field.key.find('.');
      if (field.key.substr(0, dot) == table)
        text += field.key.substr(dot + 1) + " = " + field.get() + "\n";
    }
    text += "\n";
  }
  return text;
}

std::string ConfigTable::Hash() const {
  Sha256 hash;
  for (const auto& field : fields_) {
    const bool added = field.on_resume == OnResume::kMustMatchAdded;
    const bool is_default = field.get() == field.default_value;
    if (field.on_resume != OnResume::kMustMatch && (!added || is_default)) continue;
    const auto former = former_defaults_.find(field.key);
    const bool changed = is_default && former != former_defaults_.end();
    hash.Update(field.key + "=" + (changed ? former->second : field.get()) + "\n");
  }
  return Hex(hash.Finish());
}

}  // namespace samara
