#include "play/environment_setup.h"

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

// Neither for evolution nor for learning.
TEST(SetUpTest, StartsNothingThatIsNotTrusted) {
  ExperimentConfig config;
  config.env.id = "CartPole-v1";
  config.env.untrusted = "this file";
  EXPECT_EQ(SetUpEvolution(config).status().code(), Code::kNotPermitted);
  EXPECT_EQ(SetUpLearning(config, 1).status().code(), Code::kNotPermitted);
  EXPECT_NE(SetUpEvolution(config).status().message().find("this file: expected --trust"),
            std::string::npos);
}

}  // namespace
}  // namespace samara
