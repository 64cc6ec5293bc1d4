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

// Whether a text is in it anywhere.
bool HoldsText(const nlohmann::json& value) {
  if (!value.is_structured()) return value.is_string();
  return std::any_of(value.begin(), value.end(), HoldsText);
}

// "pong" of "atari/pong" and "atari:pong"; empty: no game.
std::string GameOf(const std::string& name) {
  constexpr std::string_view kAtari = "atari";
  if (!name.starts_with(kAtari) || name.size() <= kAtari.size()) return {};
  const char separator = name[kAtari.size()];
  return separator == '/' || separator == ':' ? name.substr(kAtari.size() + 1) : std::string();
}

// "HalfCheetah" of "HalfCheetah-v4".
std::string_view WithoutVersion(std::string_view id) {
  const size_t version = id.rfind("-v");
  const bool ends_with_it = version != id.npos &&
                            id.find_first_not_of("0123456789", version + 2) == id.npos &&
                            version + 2 < id.size();
  return id.substr(0, ends_with_it ? version : id.npos);
}

// "Gymnasium" as prefix names its own environments, also where a native one has the name.
std::string_view WithoutGymnasium(std::string_view id) {
  constexpr std::string_view kGymnasium = "gymnasium:";
  return id.starts_with(kGymnasium) ? id.substr(kGymnasium.size()) : id;
}

// Steps a second of a native environment, as a multiple of Gymnasium's: doc/environments.md.
std::string_view Speed(std::string_view native) {
  return NativeSpec(native) ? "some 100 times as fast or more" : "about twice as fast";
}

}  // namespace

bool IsNativeEnvironment(std::string_view id) {
  const std::string_view task = NativeTaskOf(id);
  if (task != id && id.find(':') == id.npos)
    return true;  // no others have "?pixels=", misspelt or not
  const auto ids = NativeEnvironmentIds();
  return std::find(ids.begin(), ids.end(), task) != ids.end();
}

std::string NativeAlternative(std::string_view id, const GymOptions& options) {
  if (IsNativeEnvironment(id) || !options.empty()) return {};
  const std::string_view given = WithoutGymnasium(id);
  const auto natives = NativeEnvironmentIds();
  const auto found =
      std::find_if(natives.begin(), natives.end(), [given](const std::string& native) {
        return WithoutVersion(native) == WithoutVersion(given);
      });
  if (found == natives.end()) return {};
  const std::string text = "env.id=" + std::string(id) +
                           " is stepped by Gymnasium; env.id=" + *found + ", in C++, is " +
                           std::string(Speed(*found));
  if (given == *found) return text + " and the same task";
  return text + ", but another version of the task: scores are not comparable";
}

bool ChoosesCode(std::string_view id, const GymOptions& options) {
  if (options.wrappers != "[]" || NamesModule(id)) return true;
  if (HoldsText(nlohmann::json::parse(options.kwargs, nullptr, false))) return true;
  if (!HasAdapter(id)) return false;
  const size_t question = std::min(id.find('?'), id.size());
  // a level of DeepMind Lab may be the path of a program in Lua
  if (id.starts_with(kDmLab) && id.substr(0, question).find_first_of("/\\.") != id.npos)
    return true;
  std::string_view query = id.substr(std::min(question + 1, id.size()));
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    if (!IsPlainOption(query.substr(0, end))) return true;
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return false;
}

std::string PythonEnvironmentJson(const std::string& id, const GymOptions& options) {
  if (id == "dummy") return R"({"kind": "dummy"})";
  nlohmann::json environment = {{"kind", "gym"}, {"id", id}};
  const bool wrapped = options.wrappers != "[]";
  if (options.kwargs != "{}") environment["kwargs"] = nlohmann::json::parse(options.kwargs);
  if (wrapped) environment["wrappers"] = nlohmann::json::parse(options.wrappers);
  std::error_code gone;
  if (wrapped || NamesModule(id))
    environment["path"] = std::filesystem::current_path(gone).string();
  return environment.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Status CheckGymOptions(std::string_view id, const GymOptions& options) {
  if (options.empty() || (!id.empty() && id != "dummy" && !IsNativeEnvironment(id)))
    return Status::Ok();
  const std::string what = id.empty() ? "Atari games are" : std::string(id) + " is";
  return {Code::kConfig, "env.kwargs and env.wrappers are for Gymnasium environments, and " + what +
                             " samara's own; Gymnasium's has env.id=gymnasium:NAME"};
}

Result<NamedEnvironment> FindEnvironment(const std::string& name, std::string_view preset,
                                         const GymOptions& options) {
  NamedEnvironment found;
  RETURN_IF_ERROR(CheckGymOptions(GameOf(name).empty() ? name : std::string(), options));
  if (IsNativeEnvironment(name)) {
    ASSIGN_OR_RETURN(found.native, NativeEnvironment(name));
  } else if (const std::string game = GameOf(name); !game.empty()) {
    ASSIGN_OR_RETURN(found.preset, FindAtariPreset(preset));
    found.actor_json = AtariEnvironmentJson(*found.preset, game);
  } else {
    found.actor_json = PythonEnvironmentJson(name, options);
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
