// Checks of what `samara train` is given: the name of a preset, and keys that contradict each
// other.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/experiment.h"
#include "core/status.h"

namespace samara {

// The Atari game that `name` is or that other libraries call so: "pong", "atari/pong",
// "ALE/MsPacman-v5", "PongNoFrameskip-v4", "space invaders". Empty: none.
std::string GameMeant(std::string_view name);

// The text of a preset or a TOML file; for a game's name kConfig says how one is trained.
Result<std::string> GivenPreset(const std::string& preset_or_file);

// kConfig when env.game or env.preset is given next to env.id, which has no game: by an override,
// or the game by the same TOML as env.id. The default is let through there: the config.toml of a
// run has every key.
Status CheckGame(const EnvironmentConfig& env, std::string_view toml,
                 const std::vector<std::string>& overrides);

}  // namespace samara
