// Agents on a device: on the CPU by the operations that a GPU uses, and on a GPU where there is
// one.
#include <gtest/gtest.h>

#include <cmath>

#include "nn/safetensors.h"
#include "nn/torch/torch_device.h"
#include "rl/learner/agent_test_util.h"

namespace samara::device_agent_test {
namespace {

AgentSetup PpoSetup(const char* units, int64_t lstm) {
  AgentSetup setup = MakeSetup(Vectors(6, lstm > 0, 2), "mlp-16-tanh", lstm, 1e-3);
  ChooseAlgorithm(setup.config, "ppo");
  Set(setup, {{"ppo.units", units}, {"learn.epochs", "2"}, {"learn.minibatches", "2"}});
  if (lstm == 0)
    Set(setup, {{"network.layers", "normalize, dense 16 tanh"},
                {"network.normalize_value", "true"},
                {"network.deviation", "free"}});
  return setup;
}

struct Case {
  const char* name;
  AgentSetup setup;
  uint32_t overlap = 0;
};

std::vector<Case> Cases() {
  std::vector<Case> cases = {
      {"V-trace on images", MakeSetup(Images(5), "impala_shallow", 8, 1e-3)},
      {"V-trace on colours", MakeSetup(Images(5, 3), "impala_deep", 0, 1e-3)},
      {"V-trace of continuous actions", MakeSetup(Vectors(6, false, 2), "mlp-16-tanh", 0, 1e-3)},
      {"PPO of transitions", PpoSetup("transitions", 0)},
      {"PPO of sequences", PpoSetup("sequences", 8)},
      {"V-trace of discrete actions", MakeSetup(Vectors(6, true, 3), "mlp-16-tanh", 0, 1e-3)},
      {"R2D2", R2d2Setup(), 2},
      {"PPO with a GRU", PpoSetup("sequences", 8)}};
  Set(cases.back().setup, {{"network.lstm", "0"}, {"network.gru", "8"}});
  cases[0].setup.config.learn.entropy_target = 0.5;
  cases[0].setup.config.optimizer.kind = OptimizerKind::kRmsprop;
  cases[0].setup.config.optimizer.clip_norm = 0.5;
  cases[1].setup.config.learn.shards = 2;  // gradients that cross
  cases[1].setup.stack = FrameStackRule{.depth = 2};
  // bfloat16, which a GPU takes by itself, would differ by more than another order of sums
  for (Case& one : cases) one.setup.config.network.precision = Precision::kFloat32;
  return cases;
}

// The setup on the devices that there are.
std::vector<AgentSetup> OnDevices(AgentSetup setup) {
  setup.as_on_gpu = true;
  std::vector<AgentSetup> all = {setup};
  if (!torch::cuda::is_available()) return all;
  setup.learns_on = setup.infers_on = {.cuda = true, .ordinal = 0};
  all.push_back(setup);
  setup.learns_on = {};  // two devices
  all.push_back(setup);
  return all;
}

std::vector<float> Weights(const Agent& agent) {
  const Safetensors file =
      ParseSafetensors(agent.Save(Agent::Part::kWeights)[Agent::kWeightsFile]).ValueOrThrow();
  std::vector<float> all;
  for (const auto& [name, tensor] : file.tensors)
    for (const float x : tensor.Floats()) all.push_back(x);
  return all;
}

// Another rounding in one update changes the parameters of those that follow.
void ExpectNear(double x, double y, int update, const std::string& what) {
  const double share = update == 0 ? 2e-3 : 2e-2;
  EXPECT_NEAR(x, y, share / 10 + share * std::abs(y)) << what;
}

// Updates on the same unrolls have the losses that they have in samara's own loops, and lead to the
// same parameters, but for rounding.
TEST(DeviceAgentTest, LearnsWhatTheCpuLearns) {
  for (const auto& [name, setup, overlap] : Cases())
    for (const AgentSetup& there : OnDevices(setup)) {
      SCOPED_TRACE(testing::Message() << name << " on " << there.learns_on.text());
      Play play(setup, 5, overlap);
      const auto other = MakeAgent(there).ValueOrThrow();
      for (uint32_t i = 0; i <= 25 + overlap; ++i) play.Step(4);
      for (int update = 0; update < 3; ++update) {
        const auto unrolls = play.Take(4);
        const UpdateReport a = play.agent().Update(unrolls, 0).ValueOrThrow(),
                           b = other->Update(unrolls, 0).ValueOrThrow();
        EXPECT_TRUE(a.applied && b.applied);
        EXPECT_EQ(a.steps, b.steps);
        ExpectNear(b.gradient_norm, a.gradient_norm, update, "gradient_norm");
        ASSERT_EQ(a.numbers.size(), b.numbers.size());
        for (const auto& [number, value] : a.numbers)
          ExpectNear(b.numbers.at(number), value, update, number);
      }
      const std::vector<float> mine = Weights(play.agent()), its = Weights(*other);
      ASSERT_EQ(mine.size(), its.size());
      double apart = 0;
      for (size_t i = 0; i < mine.size(); ++i)
        apart += std::abs(mine[i] - its[i]) / static_cast<double>(mine.size());
      EXPECT_LT(apart, 1e-4);
      EXPECT_TRUE(other->finite());
    }
}

// Acting alone: the same frames lead to the same stacks, states, draws and unrolls.
TEST(DeviceAgentTest, ActsAsTheCpuActs) {
  for (const auto& [name, setup, overlap] : Cases())
    for (const AgentSetup& there : OnDevices(setup)) {
      SCOPED_TRACE(testing::Message() << name << " on " << there.infers_on.text());
      Play a(setup, 5, overlap), b(there, 5, overlap);
      for (int i = 0; i <= 30; ++i) {
        a.Step(3), b.Step(3);  // four slots: the second batch has padding
        EXPECT_EQ(a.batch().index, b.batch().index) << i;
        for (const auto& [x, y] : {std::pair{a.batch().values, b.batch().values},
                                   {a.batch().behaviour, b.batch().behaviour},
                                   {a.batch().actions, b.batch().actions},
                                   {a.batch().state, b.batch().state}})
          for (size_t k = 0; k < x.size(); ++k) ASSERT_NEAR(x[k], y[k], 2e-4) << i;
        EXPECT_EQ(a.batch().history, b.batch().history) << i;
      }
    }
}

// After an update the same batch has the values of the new policy, as in an agent that never had
// another one; computations that were recorded (nn/torch/device_graph.h) follow it.
TEST(DeviceAgentTest, ActsByTheNewestPolicy) {
  for (const auto& [name, setup, overlap] : Cases())
    for (const AgentSetup& there : OnDevices(setup)) {
      SCOPED_TRACE(testing::Message() << name << " on " << there.infers_on.text());
      Play play(there, 5, overlap);
      for (uint32_t i = 0; i <= 11 + overlap; ++i) play.Step(4);
      const std::vector<float> old = play.batch().values;
      ASSERT_TRUE(play.agent().Update(play.Take(4), 0).ok());
      const auto fresh = MakeAgent(there).ValueOrThrow();
      ASSERT_TRUE(fresh->Restore(play.agent().Save(Agent::Part::kSlots), Agent::Part::kSlots).ok());
      InferenceBatch a = play.batch(), b = a;
      a.version = b.version = InferenceBatch::kNewest;
      ASSERT_TRUE(play.agent().Infer(a).ok() && fresh->Infer(b).ok());
      EXPECT_EQ(a.version, 1);
      EXPECT_EQ(b.version, 1);
      EXPECT_NE(a.values, old);
      for (size_t i = 0; i < a.values.size(); ++i) EXPECT_NEAR(a.values[i], b.values[i], 1e-5);
      EXPECT_EQ(a.index, b.index);
    }
}

// A checkpoint does not depend on the device: it goes there and back byte by byte.
TEST(DeviceAgentTest, CheckpointsCrossDevices) {
  for (const auto& [name, setup, overlap] : Cases())
    for (const AgentSetup& there : OnDevices(setup)) {
      SCOPED_TRACE(testing::Message() << name << " on " << there.learns_on.text());
      Play play(there, 5, overlap);
      for (uint32_t i = 0; i <= 11 + overlap; ++i) play.Step(4);
      ASSERT_TRUE(play.agent().Update(play.Take(4), 0).ok());
      const auto files = play.agent().Save(Agent::Part::kSlots);
      const auto here = MakeAgent(setup).ValueOrThrow(), back = MakeAgent(there).ValueOrThrow();
      ASSERT_TRUE(here->Restore(files, Agent::Part::kSlots).ok());
      EXPECT_EQ(here->parameter_hash(), play.agent().parameter_hash());
      EXPECT_EQ(here->Save(Agent::Part::kSlots), files);
      ASSERT_TRUE(back->Restore(here->Save(Agent::Part::kSlots), Agent::Part::kSlots).ok());
      EXPECT_EQ(back->Save(Agent::Part::kSlots), files);
      const auto unrolls = play.Take(4);
      ASSERT_TRUE(play.agent().Update(unrolls, 0).ok() && back->Update(unrolls, 0).ok());
      if (!there.learns_on.cuda) {
        EXPECT_EQ(back->parameter_hash(), play.agent().parameter_hash());
      }
    }
}

TEST(DeviceAgentTest, RefusesAGpuThatIsNotThere) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "this machine has a GPU";
  AgentSetup setup = MakeSetup(Vectors(6, true, 3), "mlp-16-tanh", 0);
  setup.learns_on = setup.infers_on = {.cuda = true, .ordinal = 0};
  const Status missing = MakeAgent(setup).status();
  EXPECT_EQ(missing.code(), Code::kUnavailable);
  EXPECT_NE(missing.message().find("run.device=cuda: torch finds no GPU"), std::string::npos);
}

TEST(DeviceAgentTest, RefusesAGpuForPerceptronsThatLearnFromAReplay) {
  AgentSetup native = MakeSetup(Vectors(6, false, 2), "mlp-16-tanh", 0);
  ChooseAlgorithm(native.config, "sac");
  native.learns_on = native.infers_on = {.cuda = true, .ordinal = 0};
  const Status refused = MakeAgent(native).status();
  EXPECT_EQ(refused.code(), Code::kConfig);
  EXPECT_NE(refused.message().find("sac computes its perceptrons on the CPU"), std::string::npos)
      << refused.message();
}

}  // namespace
}  // namespace samara::device_agent_test
