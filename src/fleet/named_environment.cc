#include "fleet/named_environment.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>

#include "env/registry.h"

namespace samara {
namespace {

// The prefixes that are adapters of our own and no module: PREFIXES in
// python/samara/environment.py.
constexpr std::string_view kDmLab = "dmlab:", kAdapters[] = {"envpool:", kDmLab};

bool HasAdapter(std::string_view id) {
  return std::any_of(std::begin(kAdapters), std::end(kAdapters),
                     [id](std::string_view prefix) { return id.starts_with(prefix); });
}

bool NamesModule(std::string_view id) { return id.find(':') != id.npos && !HasAdapter(id); }

// A number or a boolean: nothing that could be a path.
bool IsPlainOption(std::string_view option) {
  const size_t equals = option.find('=');
  if (equals == option.npos) return false;
  const auto value = nlohmann::json::parse(option.substr(equals + 1), nullptr, false);
  return value.is_number() || value.is_boolean();
}

// "pong" of "atari/pong" and "atari:pong"; empty: no game.
std::string GameOf(const std::string& name) {
  constexpr std::string_view kAtari = "atari";
  if (!name.starts_with(kAtari) || name.size() <= kAtari.size()) return {};
  const char separator = name[kAtari.size()];
  return separator == '/' || separator == ':' ? name.substr(kAtari.size() + 1) : std::string();
}

}  // namespace

bool IsNativeEnvironment(std::string_view id) {
  const auto ids = NativeEnvironmentIds();
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

bool ChoosesCode(std::string_view id) {
  if (NamesModule(id)) return true;
  if (!HasAdapter(id)) return false;
  const size_t question = std::min(id.find('?'), id.size());
  // a level of DeepMind Lab may be the path of a program in Lua
  if (id.starts_with(kDmLab) && id.substr(0, question).find_first_of("/\\.") != id.npos)
    return true;
  std::string_view options = id.substr(std::min(question + 1, id.size()));
  while (!options.empty()) {
    const size_t end = std::min(options.find('&'), options.size());
    if (!IsPlainOption(options.substr(0, end))) return true;
    options.remove_prefix(std::min(end + 1, options.size()));
  }
  return false;
}

std::string PythonEnvironmentJson(const std::string& id) {
  if (id == "dummy") return R"({"kind": "dummy"})";
  nlohmann::json environment = {{"kind", "gym"}, {"id", id}};
  std::error_code gone;
  if (NamesModule(id)) environment["path"] = std::filesystem::current_path(gone).string();
  return environment.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<NamedEnvironment> FindEnvironment(const std::string& name, std::string_view preset) {
  NamedEnvironment found;
  if (IsNativeEnvironment(name)) {
    ASSIGN_OR_RETURN(found.native, NativeEnvironment(name));
  } else if (const std::string game = GameOf(name); !game.empty()) {
    ASSIGN_OR_RETURN(found.preset, FindAtariPreset(preset));
    found.actor_json = AtariEnvironmentJson(*found.preset, game);
  } else {
    found.actor_json = PythonEnvironmentJson(name);
  }
  return found;
}

Result<std::unique_ptr<Fleet>> MakeNamedFleet(const NamedEnvironment& environment, uint32_t workers,
                                              ActorFleetOptions options) {
  if (environment.native) return MakeThreadFleet(environment.native, options.slots, workers);
  options.environment_json = environment.actor_json;
  options.actors = std::max(1U, workers);
  return MakeActorFleet(options);
}

}  // namespace samara
