#include "play/environment_setup.h"

#include <gtest/gtest.h>

namespace samara {
namespace {

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
