#include "nn/torch/dense_pass.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace samara::dense_pass_test {
namespace {

using torch::Tensor;

constexpr int64_t kChannels = 5, kOutputs = 6;

std::vector<AgentNetworkConfig> Configs() {
  AgentNetworkConfig shared = {.torso = "dense 20 tanh, dense 9 relu",
                               .height = 1,
                               .width = 1,
                               .channels = kChannels,
                               .outputs = kOutputs};
  AgentNetworkConfig free = shared;
  free.free_half = 0.3;
  AgentNetworkConfig separate = free;
  separate.torso = "normalize, dense 20 tanh, dense 9 relu";
  separate.separate_value = separate.normalize_value = true;
  return {shared, free, separate};
}

// Draws statistics, where the network has them, and biases.
void Shake(AgentNetworkImpl& network) {
  const torch::NoGradGuard no_gradient;
  for (auto& parameter : network.named_parameters()) {
    const bool deviation = parameter.key().ends_with("_deviation");
    parameter.value().add_(torch::rand_like(parameter.value()), deviation ? 1.0 : 0.2);
  }
}

TEST(DensePassTest, ValuesAndDerivativesHaveTheBitsOfTheGraph) {
  for (const AgentNetworkConfig& config : Configs()) {
    torch::manual_seed(7);
    const AgentNetwork network = AgentNetworkImpl::Make(config).ValueOrThrow();
    Shake(*network);
    ASSERT_TRUE(network->dense());
    std::map<std::string, Tensor> learned;
    for (const auto& parameter : network->named_parameters())
      if (parameter.value().requires_grad()) learned[parameter.key()] = parameter.value();
    const Tensor observations = torch::randn({30, 1, 1, 1, kChannels});
    DensePass pass;
    for (const std::vector<int64_t>& rows :
         {std::vector<int64_t>{4}, {29, 0, 7, 7, 3, 11, 20}, {1, 2, 3}}) {
      const auto n = static_cast<int64_t>(rows.size());
      const Tensor chosen = observations.index_select(0, torch::tensor(rows));
      const Tensor zeros = torch::zeros({n, 1});
      const auto out = network->forward(
          {chosen, zeros, zeros.to(torch::kInt64), zeros.to(torch::kBool)}, torch::zeros({1, 0}));
      pass.Forward(*network, observations.data_ptr<float>(), rows);
      const auto floats = [](std::span<const float> x) {
        return torch::tensor(at::ArrayRef(x.data(), x.size()));
      };
      EXPECT_TRUE(floats(pass.policy()).equal(out.policy.detach().flatten()));
      EXPECT_TRUE(floats(pass.value()).equal(out.value.detach().flatten()));

      const Tensor by_policy = torch::randn({n, 1, kOutputs}), by_value = torch::randn({n, 1});
      std::vector<Tensor> parameters;
      for (const auto& [name, parameter] : learned) parameters.push_back(parameter);
      const auto expected =
          torch::autograd::grad({out.policy, out.value}, parameters, {by_policy, by_value});
      std::copy_n(by_policy.data_ptr<float>(), by_policy.numel(), pass.by_policy().data());
      std::copy_n(by_value.data_ptr<float>(), by_value.numel(), pass.by_value().data());
      std::vector<float> gradient(static_cast<size_t>(network->parameter_count()), NAN);
      pass.Backward(*network, gradient);
      std::vector<Tensor> flat;
      for (const Tensor& each : expected) flat.push_back(each.flatten());
      EXPECT_TRUE(floats(gradient).equal(torch::cat(flat))) << config.separate_value;
    }
  }
}

// A frozen network is packed once, and keeps its bits; the parameters may then change.
TEST(DensePassTest, AFrozenNetworkIsEvaluatedAsItWas) {
  for (const AgentNetworkConfig& config : Configs()) {
    const AgentNetwork network = AgentNetworkImpl::Make(config).ValueOrThrow();
    Shake(*network);
    for (Tensor& parameter : network->parameters()) parameter.set_requires_grad(false);
    const Tensor observations = torch::randn({3, kChannels});
    const std::vector<int64_t> rows = {2, 0};
    DensePass before, after;
    before.Forward(*network, observations.data_ptr<float>(), rows);
    network->Freeze();
    const torch::NoGradGuard no_gradient;
    for (const auto& parameter : network->named_parameters())
      if (parameter.key().ends_with("_weight")) Tensor(parameter.value()).zero_();
    after.Forward(*network, observations.data_ptr<float>(), rows);
    EXPECT_TRUE(std::ranges::equal(before.policy(), after.policy()));
    EXPECT_TRUE(std::ranges::equal(before.value(), after.value()));
  }
}

TEST(DensePassTest, OtherNetworksAreNot) {
  AgentNetworkConfig config = Configs()[0];
  config.core = {.units = 4};
  EXPECT_FALSE(AgentNetworkImpl::Make(config).ValueOrThrow()->dense());
  config = Configs()[0];
  config.native = false;
  EXPECT_FALSE(AgentNetworkImpl::Make(config).ValueOrThrow()->dense());
}

}  // namespace
}  // namespace samara::dense_pass_test
