// SPDX-License-Identifier: Apache-2.0 OR MIT
// Field tables: one row per parameter gives parsing, validation, help, printing and hashing.
//
// A component has one plain struct with defaults in place and one function that binds each member
// to a row:
//
//   struct GaConfig { int64_t population = 1000; ... };
//   void Bind(ConfigTable& table, GaConfig& c) {
//     table.Add("ga.population", &c.population, {.min = 2, .max = 1'000'000}, "members", "genomes
//     per generation");
//   }
//
// Values come from a TOML preset and from `table.key=value` overrides, in that order. A number is
// the same in both: an integer key takes 24e6 and 1.5e3, but no 5.0 or -0.0, and a number that is
// too small for a double is refused. Text is quoted in TOML; in an override it may be a bare word.
// An unknown key is an error that names the nearest known one. All failures are kConfig (exit 78).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/enum_names.h"
#include "core/status.h"

namespace samara {

struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};

// How a changed value on --resume is treated. kMustMatchAdded: as kMustMatch, but the default is no
// part of the hash, so that runs from before there was the key keep theirs.
enum class OnResume { kMustMatch, kMustMatchAdded, kMayChange, kMayGrow };

struct ConfigField {
  std::string key;  // "table.name"
  // "integer", "number", "number or none", "boolean", "text", "one of a|b|c", "table", "list"
  std::string type;
  std::string range;  // human text, empty when unbounded
  std::string unit;   // "frames", "members", ... or empty
  std::string default_value;
  std::string help;
  OnResume on_resume;
  std::function<Status(std::string_view)> set;  // parses TOML-style scalar text; checks the range
  std::function<std::string()> get;             // canonical text that set() accepts
};

class ConfigTable {
 public:
  void Add(const std::string& key, int64_t* value, Range range, std::string unit, std::string help,
           OnResume on_resume = OnResume::kMustMatch);
  void Add(const std::string& key, double* value, Range range, std::string unit, std::string help,
           OnResume on_resume = OnResume::kMustMatch);
  // Also "none", which TOML has in quotation marks; so may the number be.
  void Add(const std::string& key, std::optional<double>* value, Range range, std::string unit,
           std::string help, OnResume on_resume = OnResume::kMustMatch);
  void Add(const std::string& key, bool* value, std::string help,
           OnResume on_resume = OnResume::kMustMatch);
  // `choices` empty: any text.
  void Add(const std::string& key, std::string* value, const std::vector<std::string>& choices,
           std::string help, OnResume on_resume = OnResume::kMustMatch);

  // An enumeration by the names of its values; `names` is a constant.
  template <typename E, size_t N>
  void Add(const std::string& key, E* value, const EnumName<E> (&names)[N], const std::string& help,
           OnResume on_resume = OnResume::kMustMatch) {
    std::vector<std::string> choices;
    for (const auto& row : names) choices.emplace_back(row.name);
    const std::span<const EnumName<E>> table(names);
    AddText(
        key, choices, help, on_resume,
        [value, table](const std::string& name) { *value = *ValueOf(table, name); },
        [value, table] { return std::string(NameOf(table, *value)); });
  }

  // A table of values by name, such as `{size = 4, mode = "hard"}`; an override may also set one
  // name of it, "env.kwargs.size=4". `value` is canonical TOML of one line, at first "{}".
  void AddTable(const std::string& key, std::string* value, std::string help,
                OnResume on_resume = OnResume::kMustMatch);
  // A list of texts; an override may separate them by commas. `value` is at first "[]".
  void AddList(const std::string& key, std::string* value, std::string help,
               OnResume on_resume = OnResume::kMustMatch);

  // Names a key that another configuration has and this one has not: Set refuses it and says whose
  // it is. `whose`: "run.algorithm=vtrace; this run is deep-ga".
  void AddElsewhere(std::string key, std::string whose);

  // Names a key that was renamed to `key`. Recorded text may have it, its value translated by
  // `convert`; from everything else it is refused with the new name and `advice` ("twice ...").
  void AddFormer(const std::string& former, std::string key, std::string advice,
                 std::function<std::string(std::string_view)> convert);
  // Names a former value of a key that holds text: it is read as `value` everywhere.
  void AddFormerValue(const std::string& key, const std::string& former, std::string value);
  // Says that the default of `key` was `former` (canonical text) in earlier builds: the hash takes
  // today's default for it, so that runs from before keep theirs.
  void AddFormerDefault(const std::string& key, std::string former);

  // kRecorded: what a run or a policy file says about itself, which may be of an older build.
  enum class Origin { kGiven, kRecorded };
  // Every key of TOML text; tables nest one level. `source` names it in messages.
  Status ParseToml(std::string_view text, const std::string& source,
                   Origin origin = Origin::kGiven);
  // "ga.population=100".
  Status Override(std::string_view assignment);
  Status Set(std::string_view key, std::string_view value);
  // Canonical TOML of all fields, in table order: what config.toml holds and what Hash covers.
  std::string ToToml() const;
  // SHA-256 over the fields that must match on resume.
  std::string Hash() const;
  const std::vector<ConfigField>& fields() const { return fields_; }
  const ConfigField* Find(std::string_view key) const;

 private:
  void AddText(const std::string& key, const std::vector<std::string>& choices, std::string help,
               OnResume on_resume, const std::function<void(const std::string&)>& store,
               std::function<std::string()> load);
  // The name in a table that `key` ends with, and that table's field; nullptr: none.
  std::pair<const ConfigField*, std::string> FindEntry(std::string_view key) const;
  struct Former {
    std::string key, advice;
    std::function<std::string(std::string_view)> convert;
  };
  std::vector<ConfigField> fields_;
  std::map<std::string, std::string, std::less<>> elsewhere_;  // key -> whose
  std::map<std::string, Former, std::less<>> former_;          // former key -> what it became
  std::map<std::string, std::map<std::string, std::string>, std::less<>> former_values_;  // by key
  std::map<std::string, std::string, std::less<>> former_defaults_;                       // by key
};

// The text that `key` ("table.name") has in TOML text; empty when it is not there or no text.
std::string TextIn(std::string_view toml, std::string_view key);

// JSON of the value of an AddTable or AddList.
std::string JsonOf(const std::string& value);

}  // namespace samara
