// The control messages between learner process and actor: one JSON object a packet.
// Everything an actor sends is checked here before anything is done with it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "core/status.h"
#include "env/interface.h"

namespace samara {

// learner process -> actor, first: what to build.
struct ConfigureMessage {
  std::string environment_json;  // a JSON object
  uint32_t actor = 0, incarnation = 0, slots = 0;
  bool render = false;
};
std::string Write(const ConfigureMessage& message);
// learner process -> actor: the segment has its size, commands may follow.
std::string WriteWelcome();

// actor -> learner process, of native actors: what the environments are.
std::string WriteHello(const EnvironmentSpec& spec);

// actor -> learner process.
struct ActorMessage {
  enum class Kind {
    kHello,  // `spec` is what the actor plays
    kError,  // the environment failed; the actor is ending
  } kind = Kind::kError;
  EnvironmentSpec spec;
  Status error;   // code kNoInput, kConfig or, for a failure while running, kUnavailable
  int slot = -1;  // that failed, when known
};
// kConfig names the first field that is missing, of the wrong type or out of range.
Result<ActorMessage> ParseActorMessage(std::string_view packet, uint32_t slots);

// A spec as it travels, and back: kConfig as above. Open bounds of actions are null.
nlohmann::json ToJson(const EnvironmentSpec& spec);
Result<EnvironmentSpec> ParseSpec(const nlohmann::json& object);
// The spaces of observations and actions as python/samara/spaces.py reads them: "dtype", "shape";
// "discrete", "actions", "raw", "sizes", "low", "high", open bounds null.
nlohmann::json DescribeSpaces(const EnvironmentSpec& spec);

// Empty when equal, otherwise the first difference: "observation shape [84, 84] instead of [4]".
std::string Difference(const EnvironmentSpec& given, const EnvironmentSpec& expected);

}  // namespace samara
