#include "config/presets.h"

#include <map>

#include "core/config.h"
#include "core/files.h"
#include "core/log.h"

namespace samara {

std::string Preset::summary() const {
  std::string text;
  size_t at = 0;
  while (at < toml.size() && toml[at] == '#') {
    const size_t end = std::min(toml.find('\n', at), toml.size());
    text += (text.empty() ? "" : " ") + toml.substr(at + 2, end - at - 2);
    at = end + 1;
  }
  return text;
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
  // an environment's name stands for the first preset that plays it
  std::map<std::string, std::string> presets;
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) {
    for (const std::string& name : {preset.name, TextIn(preset.toml, "env.id")})
      if (!name.empty() && presets.emplace(name, preset.name).second) names.push_back(name);
  }
  return Status(Code::kConfig, Shown(preset_or_file) +
                                   ": unknown preset; the nearest known one is " +
                                   presets[Nearest(preset_or_file, names)] +
                                   " ('samara list presets' shows all; a file ends in .toml)");
}

}  // namespace samara
