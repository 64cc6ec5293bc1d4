// Environments by one word, as env.id and programs name them: how they are stepped, and what the
// word may do.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/status.h"
#include "env/atari_preset.h"
#include "env/interface.h"
#include "fleet/fleet.h"

namespace samara {

bool IsNativeEnvironment(std::string_view id);
// Whether starting the environment `id` runs code, or opens files, that the id itself chooses:
// "module:Name-v0", or options of our own prefixes ("envpool:", "dmlab:") that may be paths.
bool ChoosesCode(std::string_view id);
// Configuration of a Python actor for an id that is no Atari game, as JSON: "dummy", or an id of
// Gymnasium or of our prefixes. A module is looked for where Python finds all others, and last in
// the current folder.
std::string PythonEnvironmentJson(const std::string& id);

// An environment that a word names: exactly one of `native` and `actor_json` is set.
struct NamedEnvironment {
  EnvironmentFactory native;
  std::string actor_json;             // ActorFleetOptions::environment_json
  std::optional<AtariPreset> preset;  // of a game
};
// "atari/pong" or "atari:pong" under the preset of this name, a native id, or one of
// PythonEnvironmentJson. Starts nothing. kConfig: an unknown preset; what NativeEnvironment says.
Result<NamedEnvironment> FindEnvironment(const std::string& name, std::string_view preset);

// Slots of it: natives on `workers` threads (0: on the caller's, MakeThreadFleet), others in as
// many actor processes. `options` are those of actors, of which `slots` counts for natives too, and
// environment_json and actors are filled here.
Result<std::unique_ptr<Fleet>> MakeNamedFleet(const NamedEnvironment& environment, uint32_t workers,
                                              ActorFleetOptions options);

}  // namespace samara
