#include "play/environment_setup.h"

#include <gtest/gtest.h>

#include "evo/algorithms/ga.h"
#include "nn/device/accelerator.h"

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

// Under `auto` small networks of native environments, and safe mutations, stay on the CPU whatever
// the machine has; asked for, a GPU that cannot be used is refused.
TEST(PopulationGpuTest, TakesAGpuWhereItCanBeUsed) {
  ExperimentConfig config;
  config.run.device = "cpu";
  EXPECT_EQ(PopulationGpu(config).ValueOrThrow(), std::nullopt);
  config.run.device = "auto";
  config.env.id = "native/CartPole-v1";
  EXPECT_EQ(PopulationGpu(config).ValueOrThrow(), std::nullopt);
  config.run.device = "gpu";
  EXPECT_EQ(PopulationGpu(config).status().code(), Code::kConfig);
  config.run.device = "cuda:99";
  EXPECT_EQ(PopulationGpu(config).status().code(),
            Accelerator::BuiltForGpus() ? Code::kUnavailable : Code::kConfig);
  config.run.device = "cuda:0,cuda:1";
  EXPECT_NE(PopulationGpu(config).status().message().find("as many ranks"), std::string::npos);
  config.run.device = "cuda:98,cuda:99";
  EXPECT_EQ(PopulationGpu(config, {.ranks = 2}).status().message().find("as many ranks"),
            std::string::npos);
  GaConfig safe;
  safe.mutation.kind = MutationKind::kSmGSum;
  config.evolution = safe.Clone();
  config.run.device = "cuda";
  EXPECT_NE(PopulationGpu(config).status().message().find("safe mutations"), std::string::npos);
  config.run.device = "auto";
  config.env.id = "";
  EXPECT_EQ(PopulationGpu(config).ValueOrThrow(), std::nullopt);
}

}  // namespace
}  // namespace samara
