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

// Gives the episodes of any environment of Gymnasium's kind an end.
inline constexpr const char* kTimeLimit =
    "env.wrappers=gymnasium.wrappers:TimeLimit?max_episode_steps=1000";

// Arguments and wrappers with which a Gymnasium environment is made, as JSON.
struct GymOptions {
  std::string kwargs = "{}";    // arguments by name
  std::string wrappers = "[]";  // "module:Class", innermost first
  bool empty() const { return kwargs == "{}" && wrappers == "[]"; }
};

bool IsNativeEnvironment(std::string_view id);
// Says that a native environment is there, faster, for what `id` and its options make through
// Gymnasium: the same task, or one of another version. Empty: there is none.
std::string NativeAlternative(std::string_view id, const GymOptions& options);
// Whether starting the environment `id` runs code, or opens files, that the id or its options
// choose: "module:Name-v0", a wrapper, or options that may be paths.
bool ChoosesCode(std::string_view id, const GymOptions& options = {});
// Configuration of a Python actor for an id that is no Atari game, as JSON: "dummy", or an id of
// Gymnasium or of our prefixes. A module is looked for where Python finds all others, and last in
// the current folder.
std::string PythonEnvironmentJson(const std::string& id, const GymOptions& options = {});
// kConfig where options are given to an environment that is not made by Python: an Atari game
// (`id` is empty), a native environment.
Status CheckGymOptions(std::string_view id, const GymOptions& options);

// An environment that a word names: exactly one of `native` and `actor_json` is set.
struct NamedEnvironment {
  EnvironmentFactory native;
  std::string actor_json;             // ActorFleetOptions::environment_json
  std::optional<AtariPreset> preset;  // of a game
};
// "atari/pong" or "atari:pong" under the preset of this name, a native id, or one of
// PythonEnvironmentJson. Starts nothing. kConfig: an unknown preset; what NativeEnvironment and
// CheckGymOptions say.
Result<NamedEnvironment> FindEnvironment(const std::string& name, std::string_view preset,
                                         const GymOptions& options = {});

// Slots of it: natives on `workers` threads (0: on the caller's, MakeThreadFleet), others in as
// many actor processes. `options` are those of actors, of which `slots` counts for natives too, and
// environment_json and actors are filled here.
Result<std::unique_ptr<Fleet>> MakeNamedFleet(const NamedEnvironment& environment, uint32_t workers,
                                              ActorFleetOptions options);

}  // namespace samara
