// How the networks of an algorithm with a replay start, and their form in files.
#include "rl/learner/parameter_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/convolutions.h"
#include "nn/perceptron.h"

namespace samara::parameter_blocks_test {
namespace {

using Tensors = std::map<std::string, Tensor>;

// A torso, a policy and a critic as an algorithm has them.
Tensors Started(Initializer initializer, uint64_t seed = 5) {
  ParameterBlocks blocks;
  NetworkDescription torso =
      MakeTorso("conv 6 3x3/2 relu, conv 40 2x2 relu, dense 4 relu", 9, 9, 2).ValueOrThrow();
  torso.layers.pop_back();
  EXPECT_TRUE(Finish(torso).ok());
  const auto add = [&](const char* name, const char* head, auto net) {
    blocks.Add(name, head, std::make_shared<const decltype(net)>(std::move(net)));
  };
  add("", torso.layers.back().name.c_str(), Convolutions::Make(torso).ValueOrThrow());
  add("", "policy", Perceptron::Make("dense 50 relu", 30, 3).ValueOrThrow());
  add("critic1_", "value", Perceptron::Make("dense 20 layer_norm relu", 33, 1).ValueOrThrow());
  std::vector<float> parameters(blocks.size());
  blocks.Initialize(seed, initializer, parameters);
  return blocks.Tensors(parameters);
}

// The largest difference of the shorter side's products from gain^2 times the unit matrix.
double FromOrthogonal(const Tensor& weights, double gain) {
  const std::vector<float> values = weights.Floats();
  const auto out = static_cast<size_t>(weights.shape[0]);
  const size_t in = values.size() / out, n = std::min(in, out);
  double worst = 0;
  for (size_t a = 0; a < n; ++a)
    for (size_t b = 0; b < n; ++b) {
      double product = 0;
      for (size_t k = 0; k < std::max(in, out); ++k)
        product += in < out ? double{values[k * in + a]} * values[k * in + b]
                            : double{values[a * in + k]} * values[b * in + k];
      worst = std::max(worst, std::abs(product - (a == b ? gain * gain : 0)));
    }
  return worst;
}

// Saxe et al. 2014 (arXiv 1312.6120), with PPO's gains.
TEST(ParameterBlocksTest, OrthogonalRowsOrColumnsHaveTheGains) {
  const Tensors tensors = Started(Initializer::kOrthogonal);
  for (const char* hidden : {"conv1_weight", "conv2_weight", "fc1_weight", "critic1_fc1_weight"})
    EXPECT_LT(FromOrthogonal(tensors.at(hidden), std::sqrt(2.0)), 1e-5) << hidden;
  EXPECT_LT(FromOrthogonal(tensors.at("policy_weight"), 0.01), 1e-9);
  EXPECT_LT(FromOrthogonal(tensors.at("critic1_value_weight"), 1), 1e-6);
  EXPECT_GT(FromOrthogonal(Started(Initializer::kGlorot).at("fc1_weight"), std::sqrt(2.0)), 0.1);
}

// Keras' formula: variance 1 / fan in after the cut.
TEST(ParameterBlocksTest, LecunNormalIsTruncated) {
  const std::map<std::string, double> fan_in = {
      {"conv1_weight", 18}, {"conv2_weight", 24}, {"fc1_weight", 30}, {"critic1_fc1_weight", 33}};
  for (const auto& [name, inputs] : fan_in) {
    const std::vector<float> values = Started(Initializer::kLecunNormal).at(name).Floats();
    double squares = 0;
    for (const float value : values) {
      EXPECT_LE(std::abs(value), 2 / 0.87962566 / std::sqrt(inputs) * 1.000001);
      squares += double{value} * value * inputs;
    }
    EXPECT_NEAR(std::sqrt(squares / static_cast<double>(values.size())), 1, 0.09) << name;
  }
}

TEST(ParameterBlocksTest, GlorotIsUniformWithinItsLimit) {
  const std::vector<float> values = Started(Initializer::kGlorot).at("fc1_weight").Floats();
  const double limit = std::sqrt(6.0 / (30 + 50));
  const auto [least, largest] = std::ranges::minmax_element(values);
  EXPECT_GE(*least, -limit);
  EXPECT_LE(*largest, limit);
  EXPECT_LT(*least, -0.98 * limit);
  EXPECT_GT(*largest, 0.98 * limit);
}

TEST(ParameterBlocksTest, BiasesAreZerosScalesOnesAndSeedsAndBlocksHaveTheirOwnDraws) {
  for (const Initializer initializer :
       {Initializer::kGlorot, Initializer::kOrthogonal, Initializer::kLecunNormal}) {
    const Tensors tensors = Started(initializer), other = Started(initializer, 6);
    for (const auto& [name, tensor] : tensors) {
      const std::vector<float> values = tensor.Floats();
      if (name.ends_with("_bias")) {
        EXPECT_TRUE(std::ranges::all_of(values, [](float v) { return v == 0; })) << name;
      } else if (name.ends_with("_norm_weight")) {
        EXPECT_EQ(values, std::vector<float>(20, 1)) << name;
      } else {
        EXPECT_NE(values, other.at(name).Floats()) << name;
      }
      EXPECT_EQ(values, Started(initializer).at(name).Floats()) << name;
    }
  }
}

TEST(ParameterBlocksTest, FilesHaveTheNamesOfLayersAndGiveTheSameParameters) {
  ParameterBlocks blocks;
  blocks.Add("critic1_", "value",
             std::make_shared<const Perceptron>(
                 Perceptron::Make("dense 5 layer_norm relu", 3, 1).ValueOrThrow()));
  blocks.AddNumber("temperature");
  std::vector<float> parameters(blocks.size()), read(blocks.size());
  blocks.Initialize(1, Initializer::kGlorot, parameters);
  parameters.back() = 7;
  Tensors tensors = blocks.Tensors(parameters, "_target");
  std::string names;
  for (const auto& [name, tensor] : tensors) names += name + " ";
  EXPECT_EQ(names,
            "critic1_fc1_bias_target critic1_fc1_norm_bias_target critic1_fc1_norm_weight_target "
            "critic1_fc1_weight_target critic1_value_bias_target critic1_value_weight_target "
            "temperature_target ");
  ASSERT_TRUE(blocks.FromTensors(tensors, read, "_target").ok());
  EXPECT_EQ(read, parameters);
  tensors.erase("critic1_fc1_norm_bias_target");
  EXPECT_EQ(blocks.FromTensors(tensors, read, "_target").code(), Code::kBadData);
}

}  // namespace
}  // namespace samara::parameter_blocks_test
