#include "config/presets.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/config.h"
#include "core/files.h"
#include "core/log.h"
#include "core/suggestion.h"

namespace samara {

namespace {

constexpr std::string_view kNotes[] = {"score", "time on two cores"};

// The first lines of a file that are comments, without their "# ".
std::vector<std::string_view> FirstComments(std::string_view toml) {
  std::vector<std::string_view> lines;
  while (toml.starts_with('#')) {
    const size_t end = std::min(toml.find('\n'), toml.size());
    lines.push_back(toml.substr(std::min<size_t>(2, end), end - std::min<size_t>(2, end)));
    toml.remove_prefix(std::min(end + 1, toml.size()));
  }
  return lines;
}

// The note of this kind in a line; nothing when it has none.
std::optional<std::string_view> NoteIn(std::string_view line, std::string_view kind) {
  if (!line.starts_with(kind) || !line.substr(kind.size()).starts_with(": ")) return std::nullopt;
  return line.substr(kind.size() + 2);
}

// The preset that was meant; empty when none is near. An environment's name stands for its genetic
// algorithm, which every build has, or else for the first preset that plays it.
std::string SuggestedPreset(const std::string& given) {
  std::map<std::string, std::string> presets;
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) {
    for (const std::string& name : {preset.name, TextIn(preset.toml, "env.id")}) {
      if (name.empty()) continue;
      const auto [known, is_new] = presets.emplace(name, preset.name);
      if (is_new) names.push_back(name);
      if (preset.name.ends_with("-ga") && !known->second.ends_with("-ga"))
        known->second = preset.name;
    }
  }
  // of the folder that was named, where there is one
  const std::string folder = given.substr(0, given.find('/') + 1);
  const auto elsewhere = [&](const std::string& name) { return !name.starts_with(folder); };
  if (folder.empty() || std::ranges::all_of(names, elsewhere))
    return presets[Suggestion(given, names)];
  std::erase_if(names, elsewhere);
  return presets[Nearest(given, names)];
}

}  // namespace

std::string Preset::summary() const {
  std::string text;
  for (const std::string_view line : FirstComments(toml)) {
    const bool notes = std::ranges::any_of(
        kNotes, [line](std::string_view kind) { return NoteIn(line, kind).has_value(); });
    if (!notes) text += (text.empty() ? "" : " ") + std::string(line);
  }
  return text;
}

std::string Preset::note(std::string_view kind) const {
  for (const std::string_view line : FirstComments(toml))
    if (const auto found = NoteIn(line, kind)) return std::string(*found);
  return {};
}

Result<std::string> PresetText(const std::string& preset_or_file) {
  for (const Preset& preset : Presets()) {
    if (preset.name == preset_or_file) return preset.toml;
  }
  if (preset_or_file.ends_with(".toml")) {
    auto text = ReadFile(preset_or_file, 1 << 20);
    if (text.ok() || text.status().code() != Code::kNoInput) return text;
    return Status(Code::kNoInput,
                  text.status().message() +
                      ": expected a TOML file, or a preset ('samara list presets' shows them)");
  }
  std::error_code ignored;
  if (std::filesystem::exists(Path(preset_or_file) / "config.toml", ignored))
    return Status(Code::kConfig, preset_or_file +
                                     ": a run folder; continue it by 'samara train --resume " +
                                     preset_or_file + "'");
  if (std::filesystem::exists(preset_or_file, ignored))
    return Status(Code::kConfig,
                  Shown(preset_or_file) +
                      (std::filesystem::is_directory(preset_or_file, ignored)
                           ? ": a folder"
                           : ": a file whose name does not end in .toml") +
                      ", expected a preset ('samara list presets' shows them) or a .toml file");
  const std::string meant = SuggestedPreset(preset_or_file);
  return Status(Code::kConfig, Shown(preset_or_file) + ": unknown preset" +
                                   (meant.empty() ? "" : "; the nearest known one is " + meant) +
                                   " ('samara list presets' shows all; a file ends in .toml)");
}

}  // namespace samara
