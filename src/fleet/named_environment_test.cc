#include "fleet/named_environment.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace samara {
namespace {

TEST(ChoosesCodeTest, ModulesAndOptionsThatMayBePaths) {
  for (const char* id :
       {"module:Name-v0", "a.b:Name-v0", "envpool:Basic-v1?vzd_path=./evil", "dmlab:../level",
        "envpool:Basic-v1?frame_skip=2&wad_path=\"/x\"", "dmlab:level?runfiles=/x", "dmlab:a/b.lua",
        "dmlab:level?config={}", "envpool:Basic-v1?frame_skip", ":Name-v0", "ENVPOOL:Name-v0"})
    EXPECT_TRUE(ChoosesCode(id)) << id;
  for (const char* id :
       {"", "CartPole-v1", "phys2d/CartPole-v0", "dummy", "envpool:gfootball/academy-v1",
        "envpool:Basic-v1?frame_skip=2&fresh=false",
        "dmlab:explore_goal_locations_small?test=true"})
    EXPECT_FALSE(ChoosesCode(id)) << id;
}

TEST(PythonEnvironmentTest, OnlyAModuleGetsTheCurrentFolder) {
  const auto path = [](const char* id) {
    return nlohmann::json::parse(PythonEnvironmentJson(id)).value("path", "");
  };
  EXPECT_EQ(path("module:Name-v0"), std::filesystem::current_path());
  for (const char* id : {"CartPole-v0", "dummy", "envpool:Basic-v1", "dmlab:level?runfiles=/x"})
    EXPECT_EQ(path(id), "") << id;
}

TEST(PythonEnvironmentTest, OptionsReachTheActor) {
  const GymOptions options{.kwargs = R"({"size": 4})", .wrappers = R"(["a:B"])"};
  const auto json = nlohmann::json::parse(PythonEnvironmentJson("CartPole-v0", options));
  EXPECT_EQ(json["kwargs"]["size"], 4);
  EXPECT_EQ(json["wrappers"], nlohmann::json({"a:B"}));
  EXPECT_EQ(json["path"], std::filesystem::current_path().string());  // where a:B may lie
  EXPECT_FALSE(nlohmann::json::parse(PythonEnvironmentJson("CartPole-v0")).contains("kwargs"));
}

TEST(PythonEnvironmentTest, OptionsChooseCodeWhereTheyMayBePaths) {
  EXPECT_TRUE(ChoosesCode("CartPole-v0", {.wrappers = R"(["a:B"])"}));
  for (const char* kwargs : {R"({"xml_file": "x"})", R"({"a": {"b": [1, "x"]}})"})
    EXPECT_TRUE(ChoosesCode("Ant-v4", {.kwargs = kwargs})) << kwargs;
  EXPECT_FALSE(ChoosesCode("Ant-v4", {.kwargs = R"({"a": 1, "b": [true, {"c": 0.5}]})"}));
}

TEST(NativeAlternativeTest, NamesTheSameTaskOrSaysThatTheVersionDiffers) {
  EXPECT_EQ(NativeAlternative("gymnasium:CartPole-v1", {}),
            "env.id=gymnasium:CartPole-v1 is stepped by Gymnasium; env.id=CartPole-v1, in C++, is "
            "some 100 times as fast or more and the same task");
  for (const char* id : {"HalfCheetah-v4", "HalfCheetah", "gymnasium:HalfCheetah-v4"})
    EXPECT_EQ(NativeAlternative(id, {}),
              "env.id=" + std::string(id) +
                  " is stepped by Gymnasium; env.id=HalfCheetah-v5, in C++, is about twice as "
                  "fast, but another version of the task: scores are not comparable");
}

TEST(NativeAlternativeTest, IsEmptyWhereNoNativeHasTheName) {
  for (const char* id :
       {"CartPole-v1", "HalfCheetah-v5", "", "dummy", "LunarLander-v3", "CartPole-v",
        "phys2d/CartPole-v1", "my_tasks:CartPole-v1", "envpool:CartPole-v1"})
    EXPECT_EQ(NativeAlternative(id, {}), "") << id;
  EXPECT_EQ(NativeAlternative("gymnasium:Ant-v5", {.wrappers = R"(["a:B"])"}), "");
}

TEST(FindEnvironmentTest, OptionsAreForPythonAlone) {
  const GymOptions options{.kwargs = R"({"size": 4})"};
  for (const char* name : {"CartPole-v1", "atari/pong", "dummy"})
    EXPECT_EQ(FindEnvironment(name, "ale-v5", options).status().code(), Code::kConfig) << name;
  EXPECT_TRUE(FindEnvironment("gymnasium:CartPole-v1", "", options).ok());
}

TEST(FindEnvironmentTest, OneWordNamesGamesNativesAndPython) {
  for (const char* name : {"atari/pong", "atari:pong"}) {
    const auto game = FindEnvironment(name, "ale-v5");
    ASSERT_TRUE(game.ok()) << name;
    EXPECT_EQ(nlohmann::json::parse(game->actor_json)["game"], "pong");
    EXPECT_EQ(game->preset->name, "ale-v5");
  }
  const auto native = FindEnvironment("CartPole-v1", "");
  ASSERT_TRUE(native.ok() && native->native);
  EXPECT_TRUE(native->actor_json.empty());
  const auto python = FindEnvironment("LunarLander-v3", "");
  ASSERT_TRUE(python.ok() && !python->native && !python->preset);
  EXPECT_EQ(nlohmann::json::parse(python->actor_json)["id"], "LunarLander-v3");
  EXPECT_EQ(FindEnvironment("atari/pong", "ale-v6").status().code(), Code::kConfig);
}

}  // namespace
}  // namespace samara
