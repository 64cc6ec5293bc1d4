#include "nn/torch/script_torso.h"

#include <gtest/gtest.h>

#include "nn/torch/agent_network.h"
#include "nn/torch/script_torso_test_util.h"

namespace samara {
namespace {

using torch::Tensor;

AgentNetworkConfig Vectors(int64_t numbers) {
  return {.torso = "mlp-16-8-tanh", .height = 1, .width = 1, .channels = numbers, .outputs = 3};
}

AgentNetworkImpl::Input InputOf(const Tensor& observation) {
  const auto time = observation.size(0), batch = observation.size(1);
  return {observation, torch::zeros({time, batch}), torch::zeros({time, batch}, torch::kInt64),
          torch::zeros({time, batch}, torch::kBool)};
}

// A network with the module in place of the torso of `described`, and its parameters.
AgentNetwork WithModule(AgentNetworkConfig config, const AgentNetwork& described,
                        const std::shared_ptr<const std::string>& file) {
  config.module = TorsoFile::Make(file, config.module_input()).ValueOrThrow();
  const AgentNetwork network = AgentNetworkImpl::Make(config).ValueOrThrow();
  const torch::NoGradGuard no_gradient;
  for (auto& item : network->named_parameters()) {
    std::string name = item.key();
    if (const size_t at = name.find("torso."); at != name.npos) name.erase(at, 6);
    item.value().copy_(described->named_parameters()[name]);
  }
  return network;
}

void ExpectSame(const AgentNetwork& described, const AgentNetwork& module, const Tensor& input,
                const char* what) {
  std::map<std::string, Tensor> gradients[2];
  AgentNetworkImpl::Output outputs[2];
  for (const int i : {0, 1}) {
    const AgentNetwork& network = i == 0 ? described : module;
    outputs[i] =
        network->forward(InputOf(input), torch::zeros({input.size(1), network->state_size()}));
    (outputs[i].policy.square().sum() + outputs[i].value.sum()).backward();
    for (const auto& item : network->named_parameters()) {
      std::string name = item.key();
      if (const size_t at = name.find("torso."); at != name.npos) name.erase(at, 6);
      if (item.value().requires_grad()) gradients[i][name] = item.value().grad();
    }
  }
  EXPECT_TRUE(outputs[0].policy.allclose(outputs[1].policy, 1e-5, 1e-6)) << what;
  EXPECT_TRUE(outputs[0].value.allclose(outputs[1].value, 1e-5, 1e-6)) << what;
  ASSERT_EQ(gradients[0].size(), gradients[1].size()) << what;
  for (const auto& [name, gradient] : gradients[0])
    EXPECT_TRUE(gradient.allclose(gradients[1].at(name), 1e-4, 1e-6)) << what << ' ' << name;
}

ModuleTensors LayersOf(const AgentNetwork& network, std::initializer_list<const char*> layers) {
  ModuleTensors tensors;
  for (const char* layer : layers)
    for (const char* part : {"_weight", "_bias"})
      tensors.emplace_back(std::string(layer) + part,
                           network->named_parameters()[std::string(layer) + part]);
  return tensors;
}

// The layers that a line describes, written as a module, are the same function with the same
// gradients: with a torso for each head, with an LSTM, behind a normalization.
TEST(ScriptTorsoTest, IsTheDescribedNetwork) {
  torch::manual_seed(3);
  AgentNetworkConfig separate = Vectors(5), recurrent = Vectors(5), normalized = Vectors(5);
  separate.separate_value = true;
  recurrent.core = {4}, recurrent.reward_input = true;
  normalized.torso = "normalize, dense 16 tanh, dense 8 tanh";
  for (const auto& [what, config] : {std::pair{"plain", Vectors(5)},
                                     {"separate", separate},
                                     {"lstm", recurrent},
                                     {"normalize", normalized}}) {
    const AgentNetwork described = AgentNetworkImpl::Make(config).ValueOrThrow();
    const auto file = TanhLayers(LayersOf(described, {"fc1", "fc2"}));
    const AgentNetwork module = WithModule(config, described, file);
    EXPECT_EQ(module->parameter_count(), described->parameter_count()) << what;
    ExpectSame(described, module, torch::randn({4, 3, 1, 1, 5}), what);
  }
}

// Images come as [N][channels][rows][columns], bytes divided by 255.
TEST(ScriptTorsoTest, ReadsImagesAsPyTorchDoes) {
  torch::manual_seed(4);
  const AgentNetworkConfig config{.torso = "conv 4 3x3/2 relu, dense 6 relu",
                                  .height = 9,
                                  .width = 11,
                                  .channels = 2,
                                  .outputs = 3};
  const AgentNetwork described = AgentNetworkImpl::Make(config).ValueOrThrow();
  // the described network flattens rows, columns, channels
  const auto file = FileOf(
      ModuleOf(LayersOf(described, {"conv1", "fc"}),
               "x = torch.relu(torch.conv2d(x, self.conv1_weight, self.conv1_bias, [2, 2]))\n"
               "    x = x.permute(0, 2, 3, 1).flatten(1)\n"
               "    return torch.relu(torch.linear(x, self.fc_weight, self.fc_bias))"));
  const AgentNetwork module = WithModule(config, described, file);
  ExpectSame(described, module, torch::randint(0, 256, {2, 3, 9, 11, 2}).to(torch::kUInt8),
             "images");
}

// The file decides where a torso begins, whatever was drawn before.
TEST(ScriptTorsoTest, BeginsWithTheParametersOfTheFile) {
  const Tensor weight = torch::arange(20, torch::kFloat32).view({4, 5});
  AgentNetworkConfig config = Vectors(5);
  config.module = TorsoFile::Make(FileOf(ModuleOf({{"w", weight}}, "return x @ self.w.t()")), {5})
                      .ValueOrThrow();
  EXPECT_EQ(config.module->features(), 4);
  for (const int seed : {1, 2}) {
    torch::manual_seed(seed);
    const AgentNetwork network = AgentNetworkImpl::Make(config).ValueOrThrow();
    EXPECT_TRUE(network->named_parameters()["torso.w"].equal(weight));
  }
}

// Two networks of one file share nothing.
TEST(ScriptTorsoTest, NetworksHaveParametersOfTheirOwn) {
  AgentNetworkConfig config = Vectors(5);
  const auto file = FileOf(ModuleOf({{"w", torch::ones({4, 5})}}, "return x @ self.w.t()"));
  config.module = TorsoFile::Make(file, {5}).ValueOrThrow();
  const AgentNetwork a = AgentNetworkImpl::Make(config).ValueOrThrow(),
                     b = AgentNetworkImpl::Make(config).ValueOrThrow();
  {
    const torch::NoGradGuard no_gradient;
    a->named_parameters()["torso.w"].zero_();
  }
  EXPECT_TRUE(b->named_parameters()["torso.w"].equal(torch::ones({4, 5})));
}

TEST(ScriptTorsoTest, RefusesWhatCannotBeATorso) {
  const Tensor w = torch::ones({4, 5});
  const auto refused = [](const std::shared_ptr<const std::string>& file, const char* says,
                          Code code = Code::kConfig) {
    const Status status = TorsoFile::Make(file, {5}).status();
    EXPECT_EQ(status.code(), code) << says;
    EXPECT_NE(status.message().find(says), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  };
  const auto body = [&](const char* text, const char* says) {
    refused(FileOf(ModuleOf({{"w", w}}, text)), says);
  };
  refused(std::make_shared<const std::string>("no archive"), "no TorchScript", Code::kBadData);
  body("return torch.linear(x, self.w.t())", "fails for observations [3, 5]: mat1 and mat2");
  body("return (x @ self.w.t()).sum(1)", "gives Float [3] for observations [3, 5]");
  body("return (x @ self.w.t()).unsqueeze(0)", "gives Float [1, 3, 4]");
  body("return (x @ self.w.t()).double()", "gives Double [3, 4]");
  body("return x @ self.w.t(), x", "gives Tuple; expected one tensor");
  body("return x @ self.w.t() / 0", "not finite");
  body("return x.relu_() @ self.w.t()", "changes the observations that it reads");
  body("return torch.dropout(x @ self.w.t(), 0.5, True)", "without state and random draws");
  body("x = x @ self.w.t()\n    return x - x.mean(0)", "than for it in a batch");
  body("return (x @ self.w.t()).reshape(3, 4)", "fails for observations [1, 5]");
  refused(FileOf(ModuleOf({}, "return x")), "no parameters that require a gradient");
  refused(FileOf(ModuleOf({{"w", w.to(torch::kFloat64)}}, "return x")), "w is Double");

  torch::jit::Module twice = ModuleOf({{"w", w}}, "return x @ self.w.t()");
  twice.register_parameter("v", twice.attr("w").toTensor(), /*is_buffer=*/false);
  refused(FileOf(twice), "is another one too");
  refused(FileOf(ModuleOf({{"w", w}}, "return x @ self.w.t()", {{"running_var", w}})),
          "running_var: running statistics are not learned here");
  refused(FileOf(ModuleOf({{"w", w}}, "self.calls += 1\n    return x @ self.w.t() + self.calls",
                          {{"calls", torch::zeros({1})}})),
          "without state and random draws");
  torch::jit::Module other("Torso");
  other.register_parameter("w", w, /*is_buffer=*/false);
  other.define("def run(self, x):\n    return x @ self.w.t()\n");
  refused(FileOf(other), "no method forward(x)");
}

}  // namespace
}  // namespace samara
