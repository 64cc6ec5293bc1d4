#include "fleet/actor_messages.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/log.h"
#include "fleet/slot.h"

namespace samara {
namespace {

using Json = nlohmann::json;

constexpr int64_t kIntMax = std::numeric_limits<int32_t>::max();
constexpr size_t kTextMax = 1000;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Reads fields of one object; the first that is wrong is kept as the status.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {}

  std::string Text(const char* key) {
    const Json* value = Find(key, &Json::is_string, "a text");
    if (value == nullptr) return {};
    return EscapeControl(value->get_ref<const std::string&>().substr(0, kTextMax));
  }
  double Number(const char* key) {
    const Json* value = Find(key, &Json::is_number, "a number");
    return value == nullptr ? 0 : value->get<double>();
  }
  bool Has(const char* key) const { return object_.contains(key); }
  bool Flag(const char* key) {
    const Json* value = Find(key, &Json::is_boolean, "a boolean");
    return value != nullptr && value->get<bool>();
  }
  int64_t Integer(const char* key, int64_t min, int64_t max) {
    const Json* value = Find(key, &Json::is_number_integer, "an integer");
    if (value == nullptr) return min;
    return InRange(*value, key, min, max);
  }
  std::vector<int64_t> Integers(const char* key, int64_t min, int64_t max, size_t size_max) {
    std::vector<int64_t> result;
    for (const Json& item : Items(key, size_max)) {
      if (!item.is_number_integer())
        Fail(key, "integers");
      else
        result.push_back(InRange(item, key, min, max));
    }
    return result;
  }
  // null stands for `unbounded`: JSON has no infinity
  std::vector<float> Numbers(const char* key, float unbounded, size_t size_max) {
    std::vector<float> result;
    for (const Json& item : Items(key, size_max)) {
      if (!item.is_number() && !item.is_null())
        Fail(key, "numbers");
      else
        result.push_back(item.is_null() ? unbounded : item.get<float>());
    }
    return result;
  }
  std::vector<std::string> Texts(const char* key, size_t size_max) {
    std::vector<std::string> result;
    for (const Json& item : Items(key, size_max)) {
      if (!item.is_string())
        Fail(key, "texts");
      else
        result.push_back(EscapeControl(item.get_ref<const std::string&>().substr(0, kTextMax)));
    }
    return result;
  }
  void Fail(const char* key, const std::string& expected) {
    if (status_.ok())
      status_ = {Code::kConfig,
                 std::string("message of an actor: ") + key + ": expected " + expected};
  }
  const Status& status() const { return status_; }

 private:
  const Json* Find(const char* key, bool (Json::*is)() const noexcept, const char* expected) {
    const auto found = object_.find(key);
    if (found != object_.end() && ((*found).*is)()) return &*found;
    Fail(key, expected);
    return nullptr;
  }
  const Json& Items(const char* key, size_t size_max) {
    static const Json kNone = Json::array();
    const Json* value = Find(key, &Json::is_array, "a list");
    if (value == nullptr) return kNone;
    if (value->size() <= size_max) return *value;
    Fail(key, "at most " + std::to_string(size_max) + " items");
    return kNone;
  }
  int64_t InRange(const Json& item, const char* key, int64_t min, int64_t max) {
    // an unsigned value beyond int64 turns negative and is refused as well
    const auto value = item.get<int64_t>();
    if (value >= min && value <= max) return value;
    Fail(key, std::to_string(min) + ".." + std::to_string(max));
    return min;
  }

  const Json& object_;
  Status status_;
};

// The product of the dimensions stays below `bytes_max`.
bool Fits(const std::vector<int64_t>& shape, uint64_t item_bytes, uint64_t bytes_max) {
  uint64_t bytes = item_bytes;
  for (const int64_t d : shape) {
    bytes *= static_cast<uint64_t>(d);  // both factors are below 2^31: no overflow before the test
    if (bytes > bytes_max) return false;
  }
  return true;
}

// REQUIRES: the observation was read.
GoalSpec ReadGoal(Reader& in, const ObservationSpec& observation) {
  GoalSpec goal;
  const bool vector = observation.dtype == DType::kFloat32 && !observation.image();
  const size_t most = vector ? observation.elements() / 2 : 0;
  goal.size = in.Integer("goal_size", 0, static_cast<int64_t>(most));
  if (goal.size == 0) return goal;
  goal.threshold = in.Number("goal_threshold");
  goal.reached = in.Number("goal_reached"), goal.missed = in.Number("goal_missed");
  goal.terminates = in.Flag("goal_terminates");
  if (goal.threshold < 0) in.Fail("goal_threshold", "0 or more");
  return goal;
}

EnvironmentSpec ReadSpec(Reader& in) {
  EnvironmentSpec spec;
  spec.id = in.Text("id");
  spec.version = in.Text("version");
  const std::string dtype = in.Text("observation_dtype");
  if (dtype != "uint8" && dtype != "float32") in.Fail("observation_dtype", "uint8 or float32");
  spec.observation.dtype = dtype == "uint8" ? DType::kUint8 : DType::kFloat32;
  spec.observation.shape = in.Integers("observation_shape", 1, kIntMax, 8);
  if (!Fits(spec.observation.shape, SizeOf(spec.observation.dtype), kObservationBytesMax))
    in.Fail("observation_shape", "at most " + std::to_string(kObservationBytesMax) + " bytes");
  if (in.Has("goal_size")) spec.goal = ReadGoal(in, spec.observation);
  spec.action.discrete = in.Flag("action_discrete");
  spec.action.n = in.Integer(
      "action_n", 1, spec.action.discrete ? kIntMax : static_cast<int64_t>(kActionValuesMax));
  if (in.Has("action_sizes"))
    spec.action.sizes = in.Integers("action_sizes", 1, kIntMax, kActionValuesMax);
  int64_t product = 1;
  for (const int64_t size : spec.action.sizes)
    product = product > kIntMax / size ? kIntMax : product * size;
  if (!spec.action.sizes.empty() && (!spec.action.discrete || product != spec.action.n))
    in.Fail("action_sizes", "parts of a discrete action, whose product is action_n");
  spec.action.low = in.Numbers("action_low", -kInfinity, kActionValuesMax);
  spec.action.high = in.Numbers("action_high", kInfinity, kActionValuesMax);
  const size_t bounds = spec.action.discrete ? 0 : static_cast<size_t>(spec.action.n);
  if (spec.action.low.size() != bounds || spec.action.high.size() != bounds)
    in.Fail("action_low", "one bound per dimension of a box");
  spec.action_names = in.Texts("action_names", 4096);
  spec.frames_per_step = in.Integer("frames_per_step", 1, 1'000'000);
  spec.steps_max = in.Integer("steps_max", 0, std::numeric_limits<int64_t>::max());
  if (in.Has("memory"))
    spec.memory = in.Integer("memory", 0, static_cast<int64_t>(kMemoryBytesMax));
  if (in.Has("position")) spec.position = in.Integer("position", 0, kPositionMax);
  spec.render_height = in.Integer("render_height", 0, 65535);
  spec.render_width = in.Integer("render_width", 0, 65535);
  spec.render_frames = in.Integer("render_frames", 0, 1024);
  if (!Fits({spec.render_height, spec.render_width, spec.render_frames}, 3, kPicturesBytesMax))
    in.Fail("render_frames", "at most " + std::to_string(kPicturesBytesMax) + " bytes a step");
  if (in.Has("render_rate")) spec.render_rate = in.Number("render_rate");
  if (!(spec.render_rate >= kPictureRateMin && spec.render_rate <= kPictureRateMax))
    in.Fail("render_rate", fmt::format("{} to {}", kPictureRateMin, kPictureRateMax));
  return spec;
}

// An actor may blame the configuration or a missing input; everything else is its own failure.
Code CategoryOf(int64_t code) {
  if (code == static_cast<int>(Code::kNoInput)) return Code::kNoInput;
  if (code == static_cast<int>(Code::kConfig)) return Code::kConfig;
  return Code::kUnavailable;
}

template <typename T>
std::string ShowList(const std::vector<T>& list) {
  // a text may have been cut inside a character
  return Json(list).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string Write(const ConfigureMessage& message) {
  Json json = {{"type", "configure"},    {"protocol", kSlotProtocol},
               {"actor", message.actor}, {"incarnation", message.incarnation},
               {"slots", message.slots}, {"render", message.render}};
  json["environment"] = Json::parse(message.environment_json);
  return json.dump();
}

std::string WriteWelcome() { return R"({"type": "welcome"})"; }

namespace {

// JSON has no infinity: an open bound is null.
Json Bounds(const std::vector<float>& values) {
  Json list = Json::array();
  for (const float v : values) list.push_back(std::isfinite(v) ? Json(v) : Json());
  return list;
}

const char* DTypeName(const ObservationSpec& spec) {
  return spec.dtype == DType::kUint8 ? "uint8" : "float32";
}

}  // namespace

Json DescribeSpaces(const EnvironmentSpec& spec) {
  return {{"dtype", DTypeName(spec.observation)},
          {"shape", spec.observation.shape},
          {"discrete", spec.action.discrete},
          {"actions", spec.action.n},
          {"raw", spec.action.raw},
          {"sizes", spec.action.sizes},
          {"low", Bounds(spec.action.low)},
          {"high", Bounds(spec.action.high)}};
}

Json ToJson(const EnvironmentSpec& spec) {
  Json json = {{"id", spec.id},
               {"version", spec.version},
               {"observation_dtype", DTypeName(spec.observation)},
               {"observation_shape", spec.observation.shape},
               {"action_discrete", spec.action.discrete},
               {"action_n", spec.action.n},
               {"action_sizes", spec.action.sizes},
               {"action_low", Bounds(spec.action.low)},
               {"action_high", Bounds(spec.action.high)},
               {"action_names", spec.action_names},
               {"frames_per_step", spec.frames_per_step},
               {"steps_max", spec.steps_max},
               {"memory", spec.memory},
               {"position", spec.position},
               {"render_height", spec.render_height},
               {"render_width", spec.render_width},
               {"render_frames", spec.render_frames},
               {"render_rate", spec.render_rate}};
  if (spec.goal.size > 0)
    json.update({{"goal_size", spec.goal.size},
                 {"goal_threshold", spec.goal.threshold},
                 {"goal_reached", spec.goal.reached},
                 {"goal_missed", spec.goal.missed},
                 {"goal_terminates", spec.goal.terminates}});
  return json;
}

Result<EnvironmentSpec> ParseSpec(const Json& object) {
  Reader fields(object);
  EnvironmentSpec spec = ReadSpec(fields);
  RETURN_IF_ERROR(fields.status());
  return spec;
}

std::string WriteHello(const EnvironmentSpec& spec) {
  return Json{{"type", "hello"}, {"protocol", kSlotProtocol}, {"spec", ToJson(spec)}}.dump();
}

Result<ActorMessage> ParseActorMessage(std::string_view packet, uint32_t slots) {
  const Json json = Json::parse(packet, nullptr, false);
  if (!json.is_object()) return Status(Code::kConfig, "message of an actor: not a JSON object");
  Reader in(json);
  const std::string type = in.Text("type");
  ActorMessage message;
  if (type == "hello") {
    message.kind = ActorMessage::Kind::kHello;
    if (const int64_t protocol = in.Integer("protocol", 0, kIntMax);
        in.status().ok() && protocol != kSlotProtocol)
      return Status(Code::kConfig, "actor speaks slot protocol " + std::to_string(protocol) +
                                       ", the learner process " + std::to_string(kSlotProtocol) +
                                       ": build both from one source");
    const auto spec = json.find("spec");
    if (spec == json.end() || !spec->is_object())
      return Status(Code::kConfig, "message of an actor: spec: expected an object");
    ASSIGN_OR_RETURN(message.spec, ParseSpec(*spec));
  } else if (type == "error") {
    message.error = {CategoryOf(in.Integer("code", 0, kIntMax)), in.Text("line")};
    if (json.contains("slot"))
      message.slot = static_cast<int>(in.Integer("slot", 0, static_cast<int64_t>(slots) - 1));
  } else {
    in.Fail("type", "hello or error");
  }
  RETURN_IF_ERROR(in.status());
  return message;
}

std::string Difference(const EnvironmentSpec& given, const EnvironmentSpec& expected) {
  const auto instead = [](const std::string& name, const std::string& a, const std::string& b) {
    return name + " " + a + " instead of " + b;
  };
  const auto number = [](auto n) { return std::to_string(n); };
  if (given.id != expected.id) return instead("id", given.id, expected.id);
  if (given.version != expected.version) return instead("version", given.version, expected.version);
  if (given.observation.dtype != expected.observation.dtype) return "another type of observation";
  if (given.observation.shape != expected.observation.shape)
    return instead("observation shape", ShowList(given.observation.shape),
                   ShowList(expected.observation.shape));
  if (given.goal != expected.goal) return "other goals";
  if (given.action.discrete != expected.action.discrete) return "another kind of action";
  if (given.action.n != expected.action.n)
    return instead("actions", number(given.action.n), number(expected.action.n));
  if (given.action.sizes != expected.action.sizes)
    return instead("parts of an action", ShowList(given.action.sizes),
                   ShowList(expected.action.sizes));
  if (given.action.low != expected.action.low || given.action.high != expected.action.high)
    return "other action bounds";
  if (given.action_names != expected.action_names)
    return instead("action names", ShowList(given.action_names), ShowList(expected.action_names));
  if (given.frames_per_step != expected.frames_per_step)
    return instead("frames per step", number(given.frames_per_step),
                   number(expected.frames_per_step));
  if (given.steps_max != expected.steps_max)
    return instead("steps max", number(given.steps_max), number(expected.steps_max));
  if (given.memory != expected.memory)
    return instead("bytes of memory", number(given.memory), number(expected.memory));
  if (given.position != expected.position)
    return instead("numbers of a position", number(given.position), number(expected.position));
  if (given.render_height != expected.render_height ||
      given.render_width != expected.render_width ||
      given.render_frames != expected.render_frames || given.render_rate != expected.render_rate)
    return "other pictures";
  return {};
}

}  // namespace samara
