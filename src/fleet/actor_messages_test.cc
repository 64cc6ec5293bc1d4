#include "fleet/actor_messages.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/rng.h"

namespace samara {
namespace {

using Json = nlohmann::json;

Json Hello() {
  return Json::parse(R"({"type": "hello", "protocol": 5, "pid": 7, "spec": {
    "id": "atari/pong", "version": "1", "observation_dtype": "uint8",
    "observation_shape": [84, 84], "action_discrete": true, "action_n": 6, "action_low": [],
    "action_high": [], "action_names": ["NOOP", "FIRE"], "frames_per_step": 4, "steps_max": 0,
    "render_height": 210, "render_width": 160, "render_frames": 4}})");
}

Result<ActorMessage> Parse(const Json& json) { return ParseActorMessage(json.dump(), 2); }

TEST(ActorMessagesTest, HelloHoldsTheSpec) {
  const auto message = Parse(Hello());
  ASSERT_TRUE(message.ok()) << message.status().message();
  const EnvironmentSpec& spec = message->spec;
  EXPECT_EQ(spec.id, "atari/pong");
  EXPECT_EQ(spec.observation.dtype, DType::kUint8);
  EXPECT_EQ(spec.observation.shape, (std::vector<int64_t>{84, 84}));
  EXPECT_EQ(spec.action.n, 6);
  EXPECT_EQ(spec.action_names, (std::vector<std::string>{"NOOP", "FIRE"}));
  EXPECT_EQ(spec.frames_per_step, 4);
  EXPECT_EQ(spec.render_width, 160);
  EXPECT_EQ(spec.render_rate, 30);
}

TEST(ActorMessagesTest, PartsOfAnActionMakeItsNumber) {
  Json hello = Hello();
  hello["spec"]["action_sizes"] = {3, 2};
  const auto message = Parse(hello);
  ASSERT_TRUE(message.ok()) << message.status().message();
  EXPECT_EQ(message->spec.action.sizes, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(message->spec.action.outputs(), 5);
  EXPECT_EQ(ParseSpec(ToJson(message->spec))->action.sizes, message->spec.action.sizes);
  for (const Json& wrong : {Json{3, 3}, Json{6, 0}, Json{-2, -3}, Json{1 << 30, 1 << 30, 6}}) {
    hello["spec"]["action_sizes"] = wrong;
    EXPECT_EQ(Parse(hello).status().code(), Code::kConfig) << wrong;
  }
}

Json HelloWithGoals() {
  Json hello = Hello();
  hello["spec"].update({{"observation_dtype", "float32"},
                        {"observation_shape", {7}},
                        {"goal_size", 3},
                        {"goal_threshold", 0.05},
                        {"goal_reached", 1},
                        {"goal_missed", -0.5},
                        {"goal_terminates", true}});
  return hello;
}

TEST(ActorMessagesTest, GoalsTravelWhereThereAreAny) {
  const auto message = Parse(HelloWithGoals());
  ASSERT_TRUE(message.ok()) << message.status().message();
  const GoalSpec goal = {
      .size = 3, .threshold = 0.05, .reached = 1, .missed = -0.5, .terminates = true};
  EXPECT_EQ(message->spec.goal, goal);
  EXPECT_EQ(ParseSpec(ToJson(message->spec))->goal, goal);
  EXPECT_EQ(Difference(Parse(Hello())->spec, message->spec).substr(0, 7), "another");
  EXPECT_FALSE(ToJson(Parse(Hello())->spec).contains("goal_size"));
}

TEST(ActorMessagesTest, GoalsThatCannotBeAreRefused) {
  const std::pair<const char*, Json> cases[] = {{"goal_size", 4},         {"goal_size", -1},
                                                {"goal_threshold", -1},   {"goal_reached", "1"},
                                                {"goal_missed", nullptr}, {"goal_terminates", 0}};
  for (const auto& [key, value] : cases) {
    Json hello = HelloWithGoals();
    hello["spec"][key] = value;
    const auto message = Parse(hello);
    EXPECT_EQ(message.status().code(), Code::kConfig) << key << " " << value;
    EXPECT_NE(message.status().message().find(key), std::string::npos);
  }
  Json image = Hello();
  image["spec"]["goal_size"] = 1;
  EXPECT_FALSE(Parse(image).ok());
  image["spec"]["observation_dtype"] = "float32";
  EXPECT_FALSE(Parse(image).ok());
}

TEST(ActorMessagesTest, OpenBoundsTravelAsNull) {
  Json hello = Hello();
  hello["spec"]["action_discrete"] = false;
  hello["spec"]["action_n"] = 2;
  hello["spec"]["action_low"] = {nullptr, -1.5};
  hello["spec"]["action_high"] = {2, nullptr};
  const auto message = Parse(hello);
  ASSERT_TRUE(message.ok()) << message.status().message();
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(message->spec.action.low, (std::vector<float>{-inf, -1.5F}));
  EXPECT_EQ(message->spec.action.high, (std::vector<float>{2, inf}));
}

TEST(ActorMessagesTest, WrongFieldsAreNamed) {
  struct Case {
    const char* key;
    Json value;
  };
  const Case cases[] = {
      {"id", 3},
      {"observation_dtype", "float64"},
      {"observation_shape", {84, 0}},
      {"observation_shape", {84, -1}},
      {"observation_shape", {2147483647, 2147483647, 2147483647}},
      {"observation_shape", {1 << 20, 1 << 20}},
      {"observation_shape", {1, 1, 1, 1, 1, 1, 1, 1, 1}},
      {"observation_shape", {84.5}},
      {"action_n", 0},
      {"action_n", 18446744073709551615ULL},
      {"action_low", {0.0}},
      {"action_names", "NOOP"},
      {"action_names", {3}},
      {"action_names", Json(std::vector<std::string>(4097))},
      {"action_low", {"a"}},
      {"observation_shape", 84},
      {"version", nullptr},
      {"action_discrete", 1},
      {"frames_per_step", 0},
      {"steps_max", -1},
      {"render_height", 1 << 20},
      {"render_frames", 1e9},
  };
  for (const Case& c : cases) {
    Json hello = Hello();
    hello["spec"][c.key] = c.value;
    const auto message = Parse(hello);
    EXPECT_EQ(message.status().code(), Code::kConfig) << c.key << " " << c.value;
    EXPECT_NE(message.status().message().find(c.key), std::string::npos)
        << message.status().message();
    hello["spec"].erase(c.key);
    EXPECT_FALSE(Parse(hello).ok()) << "without " << c.key;
  }
  for (const Json& rate : {Json(0), Json(1001), Json("60")}) {  // which may be left out
    Json hello = Hello();
    hello["spec"]["render_rate"] = rate;
    EXPECT_EQ(Parse(hello).status().code(), Code::kConfig) << rate;
  }
  Json box = Hello();  // with a bound too few above
  box["spec"]["action_discrete"] = false, box["spec"]["action_n"] = 2;
  box["spec"]["action_low"] = {0, 0}, box["spec"]["action_high"] = {1};
  EXPECT_EQ(Parse(box).status().message(),
            "message of an actor: action_low: expected one bound per dimension of a box");
  box["spec"]["action_high"] = {1, 1}, box["spec"]["action_sizes"] = {2};
  EXPECT_EQ(Parse(box).status().message(),
            "message of an actor: action_sizes: expected parts of a discrete action, whose product "
            "is action_n");
  Json memory = Hello();
  memory["spec"]["memory"] = 128, memory["spec"]["position"] = 2;
  EXPECT_EQ(Parse(memory)->spec.memory, 128);
  for (const char* key : {"memory", "position"}) {
    Json negative = memory;
    negative["spec"][key] = -1;
    EXPECT_EQ(Parse(negative).status().code(), Code::kConfig) << key;
  }
  Json pictures = Hello();
  pictures["spec"]["render_height"] = pictures["spec"]["render_width"] = 65535;
  EXPECT_FALSE(Parse(pictures).ok());
}

TEST(ActorMessagesTest, AnotherProtocolIsRefusedWithBothNumbers) {
  Json hello = Hello();
  hello["protocol"] = 2;
  const auto message = Parse(hello);
  EXPECT_EQ(message.status().code(), Code::kConfig);
  EXPECT_NE(message.status().message().find("protocol 2, the learner process 5"),
            std::string::npos);
}

TEST(ActorMessagesTest, ErrorsKeepTheirCategoryAndStayOnTheirLine) {
  const auto parse = [](int code) {
    return Parse({{"type", "error"}, {"code", code}, {"line", "a\nb\x1b"}, {"slot", 1}});
  };
  EXPECT_EQ(parse(66)->error.code(), Code::kNoInput);
  EXPECT_EQ(parse(78)->error.code(), Code::kConfig);
  for (const int code : {0, 1, 70, 75}) EXPECT_EQ(parse(code)->error.code(), Code::kUnavailable);
  EXPECT_EQ(parse(78)->error.message().find_first_of("\n\x1b"), std::string::npos);
  EXPECT_EQ(parse(78)->slot, 1);
  EXPECT_FALSE(Parse({{"type", "error"}, {"code", 1}, {"line", ""}, {"slot", 2}}).ok());
}

TEST(ActorMessagesTest, PacketsThatAreNoMessageAreNamed) {
  const auto message = [](std::string_view packet) {
    const Status status = ParseActorMessage(packet, 2).status();
    EXPECT_EQ(status.code(), Code::kConfig);
    return status.message();
  };
  for (const char* packet : {"", "[]", "{", "\"hello\""})
    EXPECT_EQ(message(packet), "message of an actor: not a JSON object");
  EXPECT_EQ(message("{}"), "message of an actor: type: expected a text");
  EXPECT_EQ(message(R"({"type": "step"})"), "message of an actor: type: expected hello or error");
  EXPECT_EQ(message(R"({"type": "hello"})"), "message of an actor: spec: expected an object");
  EXPECT_EQ(message(R"({"type": "hello", "protocol": 5, "spec": 3})"),
            "message of an actor: spec: expected an object");
  EXPECT_EQ(message(R"({"type": "error", "line": ""})"),
            "message of an actor: code: expected an integer");
  EXPECT_EQ(message(R"({"type": "error", "code": -1, "line": ""})"),
            "message of an actor: code: expected 0..2147483647");
  const auto error = ParseActorMessage(R"({"type": "error", "code": 66, "line": "a"})", 2);
  EXPECT_EQ(error->slot, -1) << "of the whole process";
}

TEST(ActorMessagesTest, MutatedPacketsNeverCrash) {
  const std::string good = Hello().dump();
  const CounterRng rng(1);
  uint64_t draw = 0;
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string packet = good;
    for (uint64_t i = 0, n = 1 + rng.UniformInt(draw++, 4); i < n; ++i) {
      const size_t at = rng.UniformInt(draw++, packet.size());
      switch (rng.UniformInt(draw++, 3)) {
        case 0:
          packet[at] = static_cast<char>(rng.Bits(draw++));
          break;
        case 1:
          packet.erase(at, 1 + rng.UniformInt(draw++, 8));
          break;
        default:
          packet.insert(at, packet.substr(rng.UniformInt(draw++, packet.size()), 9));
      }
    }
    auto message = ParseActorMessage(packet, 2);
    if (!message.ok()) continue;
    ++accepted;
    EXPECT_LE(message->spec.observation.bytes(), size_t{64} << 20);
    (void)Difference(message->spec, {});
  }
  EXPECT_GT(accepted, 0) << "some mutations are harmless: the test reaches beyond the parser";
}

TEST(ActorMessagesTest, AWrittenHelloReadsAsItsSpec) {
  Json hello = Hello();
  for (const bool discrete : {true, false}) {
    if (!discrete) {
      hello["spec"]["action_discrete"] = false;
      hello["spec"]["action_n"] = 2;
      hello["spec"]["action_low"] = {nullptr, -1.5};
      hello["spec"]["action_high"] = {2, nullptr};
    }
    const EnvironmentSpec spec = Parse(hello)->spec;
    const auto again = ParseActorMessage(WriteHello(spec), 2);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(Difference(again->spec, spec), "");
  }
}

TEST(ActorMessagesTest, DifferencesAreNamed) {
  const EnvironmentSpec spec = Parse(Hello())->spec;
  EXPECT_EQ(Difference(spec, spec), "");
  EnvironmentSpec other = spec;
  other.observation.shape = {4};
  EXPECT_EQ(Difference(other, spec), "observation shape [4] instead of [84,84]");
  other = spec;
  other.action_names[0] = "WAIT";
  EXPECT_NE(Difference(other, spec), "");
  other = spec;
  other.steps_max = 9;
  EXPECT_EQ(Difference(other, spec), "steps max 9 instead of 0");
  const auto changed = [&](const std::function<void(EnvironmentSpec&)>& change) {
    EnvironmentSpec given = spec;
    change(given);
    return Difference(given, spec);
  };
  using S = EnvironmentSpec;
  EXPECT_EQ(changed([](S& s) { s.id = "a"; }), "id a instead of atari/pong");
  EXPECT_EQ(changed([](S& s) { s.version = "2"; }), "version 2 instead of 1");
  EXPECT_EQ(changed([](S& s) { s.observation.dtype = DType::kFloat32; }),
            "another type of observation");
  EXPECT_EQ(changed([](S& s) { s.goal.size = 1; }), "other goals");
  EXPECT_EQ(changed([](S& s) { s.action.discrete = false; }), "another kind of action");
  EXPECT_EQ(changed([](S& s) { s.action.n = 7; }), "actions 7 instead of 6");
  EXPECT_EQ(changed([](S& s) {
              s.action.sizes = {2, 3};
            }),
            "parts of an action [2,3] instead of []");
  EXPECT_EQ(changed([](S& s) { s.action.low = {0}; }), "other action bounds");
  EXPECT_EQ(changed([](S& s) { s.action.high = {0}; }), "other action bounds");
  EXPECT_EQ(changed([](S& s) { s.action_names = {"A"}; }),
            "action names [\"A\"] instead of [\"NOOP\",\"FIRE\"]");
  EXPECT_EQ(changed([](S& s) { s.frames_per_step = 1; }), "frames per step 1 instead of 4");
  EXPECT_EQ(changed([](S& s) { s.memory = 5; }), "bytes of memory 5 instead of 0");
  EXPECT_EQ(changed([](S& s) { s.position = 2; }), "numbers of a position 2 instead of 0");
  EXPECT_EQ(changed([](S& s) { s.render_height = 1; }), "other pictures");
  EXPECT_EQ(changed([](S& s) { s.render_width = 1; }), "other pictures");
  EXPECT_EQ(changed([](S& s) { s.render_frames = 1; }), "other pictures");
  EXPECT_EQ(changed([](S& s) { s.render_rate = 1; }), "other pictures");
}

}  // namespace
}  // namespace samara
