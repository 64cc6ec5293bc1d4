// Learning with a module of the user in place of the torso (network.module).
#include <gtest/gtest.h>

#include <map>

#include "nn/safetensors.h"
#include "nn/torch/script_torso_test_util.h"
#include "rl/learner/agent_test_util.h"

namespace samara::module_test {
namespace {

// Every parameter of an agent, a module's by the names of the layers that it imitates.
std::map<std::string, std::vector<float>> ParametersOf(const Agent& agent) {
  const auto files = agent.Save(Agent::Part::kWeights);
  std::map<std::string, std::vector<float>> parameters;
  for (const auto& [name, tensor] :
       ParseSafetensors(files.at(Agent::kWeightsFile)).ValueOrThrow().tensors) {
    const size_t torso = name.find("torso.");
    parameters[torso == name.npos ? name : name.substr(0, torso) + name.substr(torso + 6)] =
        tensor.Floats();
  }
  return parameters;
}

torch::Tensor TensorOf(const samara::Tensor& tensor) {
  const std::vector<float> values = tensor.Floats();
  return torch::tensor(at::ArrayRef<float>(values.data(), values.size())).reshape(tensor.shape);
}

// The weights of `agent` as those of one whose torso is a module, and that module.
struct Imitation {
  std::map<std::string, std::string> files;
  std::shared_ptr<const std::string> module;
};
Imitation Imitate(const Agent& agent) {
  auto files = agent.Save(Agent::Part::kWeights);
  Safetensors weights = ParseSafetensors(files.at(Agent::kWeightsFile)).ValueOrThrow();
  ModuleTensors layers;
  std::map<std::string, samara::Tensor> renamed;
  for (const auto& [name, tensor] : weights.tensors) {
    const size_t layer = name.find("fc");
    renamed[layer == name.npos ? name : name.substr(0, layer) + "torso." + name.substr(layer)] =
        tensor;
    if (layer == 0) layers.emplace_back(name, TensorOf(tensor));
  }
  weights.tensors = std::move(renamed);
  files[Agent::kWeightsFile] = FormatSafetensors(weights).ValueOrThrow();
  return {files, TanhLayers(layers)};
}

AgentSetup SetupOf(const std::string& algorithm,
                   std::initializer_list<std::pair<const char*, const char*>> keys,
                   int64_t shards = 1) {
  AgentSetup setup = MakeSetup(Vectors(6, true, 3), "mlp-16-8-tanh", 0);
  LearningConfig& c = setup.config;
  ChooseAlgorithm(c, algorithm);
  ConfigTable table;
  Bind(table, c);
  for (const auto& [key, value] : keys) EXPECT_TRUE(table.Set(key, value).ok()) << key;
  // steps are a smooth function of gradients
  c.optimizer.learning_rate = 1e-3, c.optimizer.epsilon = 1e-2;
  c.learn.shards = shards;
  return setup;
}

AgentSetup WithModule(AgentSetup setup, const Imitation& imitation) {
  setup.config.network.module = "sha256:";
  setup.config.network.module_bytes = imitation.module;
  return setup;
}

void ExpectNear(const Agent& a, const Agent& b, double error, const std::string& what) {
  const auto ours = ParametersOf(a), theirs = ParametersOf(b);
  ASSERT_EQ(ours.size(), theirs.size()) << what;
  for (const auto& [name, values] : ours) {
    ASSERT_TRUE(theirs.contains(name)) << what << ' ' << name;
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], theirs.at(name)[i], error) << what << ' ' << name << ' ' << i;
  }
}

// A module with the layers of a described network, from the same parameters, has the same losses
// and comes to the same parameters.
TEST(ModuleTest, LearnsAsTheDescribedNetworkDoes) {
  const std::pair<const char*, AgentSetup> cases[] = {
      {"vtrace", SetupOf("vtrace", {})},
      {"vtrace, lstm",
       SetupOf("vtrace", {{"network.lstm", "8"}, {"network.reward_input", "true"}})},
      {"vtrace, gru", SetupOf("vtrace", {{"network.gru", "8"}})},
      {"a2c",
       SetupOf("a2c",
               {{"learn.mode", "deterministic"}, {"learn.lag", "0"}, {"learn.environments", "4"}})},
      {"ppo", SetupOf("ppo", {{"learn.epochs", "3"}, {"learn.minibatches", "5"}})},
      {"ppo, separate",
       SetupOf("ppo", {{"learn.minibatches", "5"},
                       {"network.value", "separate"},
                       {"network.normalize_value", "true"},
                       {"network.layers", "normalize, dense 16 tanh, dense 8 tanh"}})},
  };
  for (const auto& [what, setup] : cases) {
    Play described(setup, 5);
    const Imitation imitation = Imitate(described.agent());
    Play module(WithModule(setup, imitation), 5);
    ASSERT_TRUE(module.agent().Restore(imitation.files, Agent::Part::kWeights).ok()) << what;
    // of both, what is known of observations and values before the first update
    const auto own = described.agent().Save(Agent::Part::kWeights);
    ASSERT_TRUE(described.agent().Restore(own, Agent::Part::kWeights).ok()) << what;
    const auto before = ParametersOf(described.agent());
    ExpectNear(described.agent(), module.agent(), 0, what);
    described.Step(4), module.Step(4);
    for (int update = 0; update < 20; ++update) {
      for (int i = 0; i < 5; ++i) described.Step(4), module.Step(4);
      const auto ours = described.agent().Update(described.Take(4), 0).ValueOrThrow();
      const auto theirs = module.agent().Update(module.Take(4), 0).ValueOrThrow();
      ASSERT_TRUE(ours.applied && theirs.applied);
      for (const auto& [name, value] : ours.numbers)
        ASSERT_NEAR(value, theirs.numbers.at(name), 1e-4 * (1 + std::abs(value)))
            << what << ' ' << name << ' ' << update;
    }
    ExpectNear(described.agent(), module.agent(), 1e-5, what);
    EXPECT_NE(ParametersOf(described.agent()), before);
  }
}

// Threads leave no trace; a restored agent goes on with the same bits.
TEST(ModuleTest, UpdatesAreRepeatedBitByBit) {
  for (const int64_t shards : {1, 2}) {
    std::string hash;
    for (const int64_t threads : {1, 2}) {
      AgentSetup setup =
          SetupOf("ppo", {{"learn.epochs", "3"}, {"learn.minibatches", "5"}}, shards);
      setup.config.learn.threads = threads;
      setup = WithModule(setup, Imitate(*MakeAgent(setup).ValueOrThrow()));
      Play play(setup, 5);
      for (int i = 0; i <= 5; ++i) play.Step(4);
      ASSERT_TRUE(play.agent().Update(play.Take(4), 0).ValueOrThrow().applied);
      const auto other = MakeAgent(setup).ValueOrThrow();
      ASSERT_TRUE(other->Restore(play.agent().Save(Agent::Part::kSlots), Agent::Part::kSlots).ok());
      for (int i = 0; i < 5; ++i) play.Step(4);
      const auto unrolls = play.Take(4);
      ASSERT_TRUE(play.agent().Update(unrolls, 0).ok() && other->Update(unrolls, 0).ok());
      EXPECT_EQ(other->parameter_hash(), play.agent().parameter_hash());
      if (threads == 1) hash = other->parameter_hash();
      EXPECT_EQ(other->parameter_hash(), hash) << shards;
    }
  }
}

TEST(ModuleTest, IsRefusedWhereItCannotBe) {
  const auto refused = [](const AgentSetup& setup, const std::string& says) {
    const Status status = MakeAgent(setup).status();
    EXPECT_EQ(status.code(), Code::kConfig) << says;
    EXPECT_NE(status.message().find(says), std::string::npos) << status.message();
  };
  AgentSetup setup = SetupOf("ppo", {});
  const Imitation imitation = Imitate(*MakeAgent(setup).ValueOrThrow());
  setup = WithModule(setup, imitation);
  AgentSetup other = setup;
  other.environment = Vectors(7, true, 3);
  refused(other, "fails for observations [3, 7]");
  other.environment = Images(3);
  refused(other, "fails for observations [3, 4, 36, 36]");
  other = setup;
  other.config.network.module_bytes = nullptr;
  refused(other, "expected network.module=FILE, module.pt of the policy's run");
  ChooseAlgorithm(other.config, "dqn");
  refused(other, "network.module: dqn learns with perceptrons; expected it left out");
}

}  // namespace
}  // namespace samara::module_test
