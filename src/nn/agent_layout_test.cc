// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/agent_layout.h"

#include <gtest/gtest.h>

#include <numeric>

namespace samara::agent_layout_test {
namespace {

Tensor Counted(std::vector<int64_t> shape, float first) {
  int64_t count = 1;
  for (const int64_t n : shape) count *= n;
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return Tensor::OfFloats(std::move(shape), values);
}

bool Equal(const NamedTensors& a, const NamedTensors& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.shape == y.second.shape &&
           x.second.bytes == y.second.bytes;
  });
}

NamedTensors Learner() {
  return {{"conv1_weight", Counted({2, 1, 3, 3}, 0)},
          {"conv1_bias", Counted({2}, 20)},
          {"conv2_weight", Counted({3, 2, 2, 2}, 30)},
          {"conv2_bias", Counted({3}, 60)},
          {"fc_weight", Counted({1, 6}, 100)},
          {"fc_bias", Counted({1}, 70)},
          {"fc_norm_weight", Counted({1}, 80)},
          {"fc_norm_bias", Counted({1}, 90)},
          {"lstm_input", Counted({8, 1}, 200)},
          {"lstm_recurrent", Counted({8, 2}, 300)},
          {"lstm_bias", Counted({8}, 400)},
          {"normalize_mean", Counted({3}, 500)},
          {"normalize_deviation", Counted({3}, 600)},
          {"policy_weight", Counted({4, 2}, 500)},
          {"policy_bias", Counted({4}, 600)},
          {"value_weight", Counted({1, 2}, 700)},
          {"value_bias", Counted({1}, 800)}};
}

TEST(AgentLayoutTest, NamesAndColumnsAreThoseOfTorch) {
  const NamedTensors exported = AgentToTorch(Learner()).ValueOrThrow();
  std::string names;
  for (const auto& [name, tensor] : exported) names += name + ' ';
  EXPECT_EQ(names,
            "conv1.bias conv1.weight conv2.bias conv2.weight fc.bias fc.weight fc_norm.bias "
            "fc_norm.weight lstm.bias_hh lstm.bias_ih lstm.weight_hh lstm.weight_ih normalize.mean "
            "normalize.std policy.bias policy.weight value.bias value.weight ");
  // two places of three channels: the channels come first
  EXPECT_EQ(exported.at("fc.weight").Floats(), (std::vector<float>{100, 103, 101, 104, 102, 105}));
  EXPECT_EQ(exported.at("lstm.bias_hh").Floats(), std::vector<float>(8));
  EXPECT_EQ(exported.at("lstm.weight_ih").shape, (std::vector<int64_t>{8, 1}));
  EXPECT_TRUE(Equal(AgentFromTorch(exported).ValueOrThrow(), Learner()));
}

// A module of the user has the names of Python already, also where they end as those of a learner.
TEST(AgentLayoutTest, ParametersOfAModuleStayAsTheyAre) {
  NamedTensors learner = {{"torso.fc.weight", Counted({2, 6}, 0)},
                          {"torso.my_weight", Counted({2, 3, 1, 1}, 20)},
                          {"torso.lstm_bias", Counted({2}, 30)},
                          {"value_torso.0.bias", Counted({2}, 40)}};
  const NamedTensors module = learner;
  learner["policy_weight"] = Counted({4, 2}, 50);
  NamedTensors exported = AgentToTorch(learner).ValueOrThrow();
  EXPECT_TRUE(Equal(AgentFromTorch(exported).ValueOrThrow(), learner));
  EXPECT_EQ(exported.erase("policy.weight"), 1U);
  EXPECT_TRUE(Equal(exported, module));
}

// Eleven convolutions and two dense layers: the first of these reads the last map.
TEST(AgentLayoutTest, PermutesTheFirstDenseLayerAfterTheLastMap) {
  NamedTensors learner = {{"stack1_conv_weight", Counted({9, 1, 3, 3}, 0)},
                          {"fc1_weight", Counted({1, 6}, 100)},
                          {"fc2_weight", Counted({2, 6}, 200)}};
  for (int i = 1; i <= 11; ++i)
    learner["conv" + std::to_string(i) + "_weight"] = Counted({i == 11 ? 3 : 5, 1, 1, 1}, 0);
  const NamedTensors exported = AgentToTorch(learner).ValueOrThrow();
  EXPECT_EQ(exported.at("fc1.weight").Floats(), (std::vector<float>{100, 103, 101, 104, 102, 105}));
  EXPECT_EQ(exported.at("fc2.weight").Floats(), learner.at("fc2_weight").Floats());
  EXPECT_TRUE(Equal(AgentFromTorch(exported).ValueOrThrow(), learner));
}

TEST(AgentLayoutTest, BothBiasesOfAnLstmCount) {
  NamedTensors exported = AgentToTorch(Learner()).ValueOrThrow();
  exported["lstm.bias_hh"] = Counted({8}, 1);
  EXPECT_EQ(AgentFromTorch(exported).ValueOrThrow().at("lstm_bias").Floats()[7], 407 + 8);
}

// nn.GRUCell's formula has r and z of both biases' sums, and n = tanh(... + b_in + r * (... +
// b_hn)).
TEST(AgentLayoutTest, BiasesOfAGruAreSummedButForTheLastGate) {
  const NamedTensors learner = {{"gru_input", Counted({6, 3}, 0)},
                                {"gru_recurrent", Counted({6, 2}, 50)},
                                {"gru_bias", Counted({8}, 100)}};
  NamedTensors exported = AgentToTorch(learner).ValueOrThrow();
  EXPECT_EQ(exported.size(), 4U);
  EXPECT_EQ(exported.at("gru.weight_ih").Floats(), learner.at("gru_input").Floats());
  EXPECT_EQ(exported.at("gru.weight_hh").Floats(), learner.at("gru_recurrent").Floats());
  EXPECT_EQ(exported.at("gru.bias_ih").Floats(),
            (std::vector<float>{100, 101, 102, 103, 104, 105}));
  EXPECT_EQ(exported.at("gru.bias_hh").Floats(), (std::vector<float>{0, 0, 0, 0, 106, 107}));
  EXPECT_EQ(exported.at("gru.bias_hh").shape, (std::vector<int64_t>{6}));
  EXPECT_TRUE(Equal(AgentFromTorch(exported).ValueOrThrow(), learner));
  exported["gru.bias_hh"] = Counted({6}, 1);
  EXPECT_EQ(AgentFromTorch(exported).ValueOrThrow().at("gru_bias").Floats(),
            (std::vector<float>{101, 103, 105, 107, 104, 105, 5, 6}));
  for (const auto& shape : {std::vector<int64_t>{7}, {6, 1}, {}}) {
    exported["gru.bias_ih"] = exported["gru.bias_hh"] = Counted(shape, 0);
    EXPECT_EQ(AgentFromTorch(exported).status().message(),
              "gru.bias_ih: expected 3 float32 numbers a unit");
    EXPECT_EQ(AgentToTorch({{"gru_bias", Counted(shape, 0)}}).status().code(), Code::kBadData);
  }
}

TEST(AgentLayoutTest, WhatDoesNotFitIsRefused) {
  NamedTensors columns = Learner(), bytes = Learner();
  columns["fc_weight"] = Counted({1, 7}, 0);
  bytes["conv1_bias"].type = Tensor::Type::kUint8;
  for (const NamedTensors& bad : {columns, bytes})
    EXPECT_EQ(AgentToTorch(bad).status().code(), Code::kBadData);
  NamedTensors flat = Learner();
  flat["fc_weight"] = Counted({6}, 0);
  EXPECT_EQ(AgentToTorch(flat).status().message(),
            "fc_weight: expected columns for maps of 3 channels");
  const NamedTensors good = AgentToTorch(Learner()).ValueOrThrow();
  const Tensor words{Tensor::Type::kUint8, {8}, "12345678"};
  for (const auto& [name, tensor] : std::vector<std::pair<const char*, Tensor>>{
           {"lstm.bias_hh", Counted({4}, 0)}, {"lstm.bias_hh", words}, {"lstm.bias_ih", words}}) {
    NamedTensors biases = good;
    biases[name] = tensor;
    const Status status = AgentFromTorch(biases).status();
    EXPECT_EQ(status.code(), Code::kBadData);
    EXPECT_EQ(status.message(), "lstm.bias_hh: expected the shape and type of lstm.bias_ih");
  }
}

TEST(AgentLayoutTest, WhatHasNoPlaceInALayoutKeepsItsNameAndValues) {
  const NamedTensors learner = {{"entropy_cost", Counted({}, 3)},
                                {"fc_weight", Counted({1, 6}, 0)}};
  const NamedTensors exported = AgentToTorch(learner).ValueOrThrow();
  EXPECT_EQ(exported.at("entropy_cost").Floats(), std::vector<float>{3});
  EXPECT_EQ(exported.at("fc.weight").Floats(), learner.at("fc_weight").Floats()) << "no map";
  // a bias of PyTorch's that is alone is the whole bias
  const NamedTensors one = {{"lstm.bias_ih", Counted({8}, 1)}};
  EXPECT_EQ(AgentFromTorch(one).ValueOrThrow().at("lstm_bias").Floats(),
            one.at("lstm.bias_ih").Floats());
}

}  // namespace
}  // namespace samara::agent_layout_test
