// The presets shipped with samara: TOML files of presets/, compiled in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace samara {

struct Preset {
  std::string name;  // "atari/deep-ga-desktop"
  std::string toml;
  // The first comment lines of the file, joined, without the notes among them.
  std::string summary() const;
  // The rest of a line "# KIND: ..." among them: "score" of its seeds in doc/results.md, "time on
  // two cores" of a run there. Empty: not measured.
  std::string note(std::string_view kind) const;
};

const std::vector<Preset>& Presets();

// Text of a preset by name, or of a .toml file by path. kConfig naming the nearest preset; kNoInput
// when a path does not exist.
Result<std::string> PresetText(const std::string& preset_or_file);

}  // namespace samara
