// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/layer_line.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace samara::layer_line_test {
namespace {

using Kind = Layer::Kind;

struct Expected {
  Kind kind;
  std::string name;
  int64_t out, kernel, stride;
  Padding padding;
  Activation activation;
};

void ExpectLayers(const std::vector<Layer>& layers, const std::vector<Expected>& expected) {
  ASSERT_EQ(layers.size(), expected.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer& is = layers[i];
    const Expected& want = expected[i];
    EXPECT_EQ(is.kind, want.kind) << i;
    EXPECT_EQ(is.name, want.name) << i;
    EXPECT_EQ(is.out, want.out) << i;
    EXPECT_EQ(is.activation, want.activation) << i;
    if (want.kind != Kind::kConv) continue;
    EXPECT_EQ(is.kernel, want.kernel) << i;
    EXPECT_EQ(is.stride, want.stride) << i;
    EXPECT_EQ(is.padding, want.padding) << i;
  }
}

Expected Conv(std::string name, int64_t out, int64_t kernel, int64_t stride, Padding padding) {
  return {Kind::kConv, std::move(name), out, kernel, stride, padding, Activation::kRelu};
}
Expected Dense(std::string name, int64_t out, Activation activation) {
  return {Kind::kDense, std::move(name), out, 0, 1, Padding::kValid, activation};
}

// The layers of the papers, written down as they were before they were lines.
TEST(LayerLineTest, PublishedNetworksKeepTheirLayers) {
  const auto layers = [](std::string_view name) { return FindLayers(name).ValueOrThrow().layers; };
  constexpr Padding kSame = Padding::kSame, kValid = Padding::kValid;
  constexpr Activation kRelu = Activation::kRelu, kTanh = Activation::kTanh;
  ExpectLayers(layers("LargeModel"),
               {Conv("conv1", 32, 8, 4, kSame), Conv("conv2", 64, 4, 2, kSame),
                Conv("conv3", 64, 3, 1, kSame), Dense("fc", 512, kRelu)});
  ExpectLayers(layers("Model"), {Conv("conv1", 16, 8, 4, kSame), Conv("conv2", 32, 4, 2, kSame),
                                 Dense("fc", 256, kRelu)});
  for (const char* name : {"Nature", "nature"})
    ExpectLayers(layers(name), {Conv("conv1", 32, 8, 4, kValid), Conv("conv2", 64, 4, 2, kValid),
                                Conv("conv3", 64, 3, 1, kValid), Dense("fc", 512, kRelu)});
  ExpectLayers(
      layers("impala_shallow"),
      {Conv("conv1", 16, 8, 4, kValid), Conv("conv2", 32, 4, 2, kValid), Dense("fc", 256, kRelu)});
  ExpectLayers(layers("linear"), {});
  ExpectLayers(layers("mlp-8-tanh"), {Dense("fc1", 8, kTanh)});
  ExpectLayers(layers("mlp-8-4-relu"), {Dense("fc1", 8, kRelu), Dense("fc2", 4, kRelu)});
  const auto deep = layers("impala_deep"), football = layers("football");
  ASSERT_EQ(deep.size(), 4u);
  ASSERT_EQ(football.size(), 5u);
  const int64_t channels[] = {16, 32, 32, 32};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(football[i].kind, Kind::kResidual);
    EXPECT_EQ(football[i].out, channels[i]);
    EXPECT_EQ(football[i].name, "stack" + std::to_string(i + 1));
  }
  ExpectLayers({deep.back()}, {Dense("fc", 256, kRelu)});
  ExpectLayers({football.back()}, {Dense("fc", 256, kRelu)});
}

TEST(LayerLineTest, DenseLayersAreNumberedUnlessOneReadsAMap) {
  const auto names = [](std::string_view line) {
    std::string text;
    for (const Layer& layer : ParseLayers(line).ValueOrThrow()) text += layer.name + " ";
    return text;
  };
  EXPECT_EQ(names("dense 4 none"), "fc1 ");
  EXPECT_EQ(names("conv 4 3x3 tanh,dense 4 relu , dense 2 tanh"), "conv1 fc1 fc2 ");
  EXPECT_EQ(names("lstm 8"), "lstm1 ");
  EXPECT_EQ(names("lstm 8, dense 4 relu"), "lstm1 fc1 ");
  EXPECT_EQ(names("conv 4 3x3 tanh, dense 4 relu, 2 x gru 3, rnn 2 tanh, out tanh"),
            "conv1 fc gru1 gru2 rnn1 out ");
  EXPECT_EQ(names("dense 2 relu, gru 3, dense 4 relu"), "fc1 gru1 fc2 ");
  EXPECT_EQ(names("3 x dense 2 relu"), "fc1 fc2 fc3 ");
  EXPECT_EQ(names("out no_bias none"), "out ");
  EXPECT_EQ(names("normalize, dense 2 relu, dense 4 vbn relu"), "normalize fc1 fc2 ");
  EXPECT_EQ(names("residual 2,conv 4 3x3/2 same none,dense 4 relu"), "stack1 conv1 fc ");
}

TEST(LayerLineTest, SaysWhereALineIsWrong) {
  const auto refused = [](std::string_view line, const std::string& says) {
    const auto layers = ParseLayers(line);
    ASSERT_FALSE(layers.ok()) << line;
    EXPECT_EQ(layers.status().code(), Code::kConfig);
    EXPECT_EQ(layers.status().message().find("layers, column " + says), 0u)
        << layers.status().message();
  };
  refused("conv 16 8x8/4 rel",
          "15: 'rel', expected same, valid, vbn, vbn_affine, relu, tanh, none, sigmoid, elu, selu, "
          "silu, gelu, lrelu or "
          "lrelu0.2, as in conv 16");
  refused("conv 16 8x8/4 same", "19: nothing, expected vbn, vbn_affine, relu, tanh, none");
  refused("dense 64 tanh, lstn 64", "16: 'lstn', expected dense, rnn, lstm, gru or out");
  refused("dense 64 tanh, conv 8 3x3 relu", "16: 'conv', expected dense");
  refused("conv 8 3x3 relu, residual 8", "18: 'residual', expected conv, dense, rnn");
  refused("dense 64 tanh,", "15: nothing, expected dense");
  refused(",dense 64 tanh", "1: nothing, expected normalize, residual, conv, dense");
  refused("residual 8, dens 8", "13: 'dens', expected residual, conv, dense, rnn");
  refused("dense 8x relu", "7: '8x', expected the number of units, 1 to ");
  refused("conv 8 x3 relu", "8: 'x3', expected a square window and its stride, such as 8x8/4");
  refused("conv 8 3x3/1z relu", "8: '3x3/1z', expected a square window");
  refused("conv 8 3x3 valid", "17: nothing, expected vbn, vbn_affine, relu, tanh, none");
  refused("-3 x dense 8 relu", "1: '-3', expected normalize, residual");
  refused("rnn 8 sigmoid", "7: 'sigmoid', expected tanh or relu");
  refused("lstm 8 tanh", "8: 'tanh', expected a comma or the end");
  refused("gru", "4: nothing, expected the number of units");
  refused("lstm 8, conv 8 3x3 relu", "9: 'conv', expected dense");
  refused("out tanh, dense 8 relu", "11: 'dense', expected nothing after the output layer");
  refused("dense 8 tanh, normalize", "15: 'normalize', expected dense");
  refused("2 x normalize, dense 8 tanh", "5: 'normalize', expected");
  refused("dense 8 vbn", "12: nothing, expected relu");
  refused("dense 8 rel", "9: 'rel', expected vbn, vbn_affine, layer_norm, relu");
  refused("conv 8 3x3 layer_norm relu", "12: 'layer_norm', expected same, valid, vbn");
  refused("lstm 8 vbn", "8: 'vbn', expected a comma");
  refused("out", "4: nothing, expected diagonal, no_bias, relu, tanh");
  refused("out no_bias", "12: nothing, expected relu, tanh");
  refused("out no_bias diagonal", "13: 'diagonal', expected relu");
  refused("2 x out tanh", "5: 'out', expected normalize, residual, conv, dense");
  refused("3 dense 8 relu", "3: 'dense', expected x, such as 3 x dense");
  refused("3x dense 8 relu", "1: '3x', expected a number of layers");
  refused("0 x dense 8 relu", "1: '0', expected a number of layers");
  refused("9999999999999999999 x dense 8 relu", "1: '9999999999999999999', expected a number");
  refused("1025 x dense 8 relu", "8: 'dense', expected at most 1024 layers");
  refused("dense 64 tanh relu", "15: 'relu', expected a comma or the end");
  refused("dense 0 tanh", "7: '0', expected the number of units, 1 to 1048576");
  refused("dense 1048577 tanh", "7: '1048577', expected the number");
  refused("dense -3 tanh", "7: '-3', expected the number");
  refused("dense 99999999999999999999 tanh", "7: '99999999999999999999', expected the number");
  refused("conv 4 8 relu", "8: '8', expected a square window");
  refused("conv 4 8x7 relu", "8: '8x7', expected a square window");
  refused("conv 4 3x3/4 relu", "8: '3x3/4', expected a square window");
  refused("conv 4 65x65 relu", "8: '65x65', expected a square window");
  refused("conv 4 3x3/ relu", "8: '3x3/', expected a square window");
  const std::string many = "1000 x dense 1 relu, 24 x rnn 2 tanh";
  EXPECT_EQ(ParseLayers(many).ValueOrThrow().size(), 1024u);
  refused(many + ", dense 1 relu", std::to_string(many.size() + 3) + ": 'dense', expected at most");
}

TEST(LayerLineTest, RepeatedLayersAreTheLayersWrittenOut) {
  const auto repeated = MakeNetwork("2 x dense 5 tanh, 2 x lstm 3", 1, 1, 4, 2).ValueOrThrow();
  const auto written =
      MakeNetwork("dense 5 tanh, dense 5 tanh, lstm 3, lstm 3", 1, 1, 4, 2).ValueOrThrow();
  EXPECT_EQ(repeated.parameter_count, written.parameter_count);
  const auto a = Tensors(repeated), b = Tensors(written);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].name, b[i].name);
    EXPECT_EQ(a[i].offset, b[i].offset);
  }
  ExpectLayers(FindLayers("mlp-8-4-lrelu0.2").ValueOrThrow().layers,
               {Dense("fc1", 8, Activation::kLrelu0p2), Dense("fc2", 4, Activation::kLrelu0p2)});
}

TEST(LayerLineTest, ANameOfAPerceptronHasAnActivation) {
  for (const char* name : {"mlp-16-none", "mlp-16", "mlp-", "mlp--relu", "mlp-16-relu-"}) {
    const Status status = FindLayers(name).status();
    EXPECT_EQ(status.code(), Code::kConfig) << name;
    EXPECT_EQ(status.message().find(std::string("no network '") + name + "', nearest is"), 0U)
        << status.message();
  }
}

TEST(LayerLineTest, LearnersRefuseWhatIsForEvolution) {
  for (const char* line : {"dense 8 tanh, lstm 8", "rnn 4 relu, dense 8 tanh",
                           "dense 8 tanh, out tanh", "normalize", "dense 8 vbn tanh"})
    EXPECT_EQ(MakeTorso(line, 1, 1, 4).status().code(), Code::kConfig) << line;
  EXPECT_EQ(MakeTorso("normalize, dense 8 tanh", 1, 1, 4).ValueOrThrow().layers.size(), 2U);
  EXPECT_EQ(MakeTorso("normalize, dense 8 tanh", 8, 8, 4).status().code(), Code::kConfig);
}

TEST(LayerLineTest, LayerNormalizationIsLearners) {
  const std::string line = "dense 8 layer_norm tanh, dense 4 relu";
  const auto torso = MakeTorso(line, 1, 1, 3).ValueOrThrow();
  EXPECT_EQ(torso.layers[0].norm, Norm::kLayer);
  EXPECT_FALSE(torso.needs_reference());
  EXPECT_EQ(LineOfDense(torso.layers), line);
  const auto network = MakeLearnedNetwork(line, 3, 2).ValueOrThrow();
  EXPECT_EQ(network.parameter_count, 3u * 8 + 3 * 8 + 9 * 4 + 5 * 2);
  EXPECT_EQ(network.evolved_count, network.parameter_count);
  std::string names;
  for (const TensorSlice& slice : Tensors(network)) names += slice.name + " ";
  EXPECT_EQ(names,
            "fc1.weight fc1.bias fc1_norm.weight fc1_norm.bias fc2.weight fc2.bias out.weight "
            "out.bias ");
  const Status refused = MakeNetwork(line, 1, 1, 3, 2).status();
  EXPECT_EQ(refused.code(), Code::kConfig);
  EXPECT_NE(refused.message().find("layer_norm is trained by gradients only"), std::string::npos);
}

TEST(LayerLineTest, EveryNetworkCanBeMade) {
  for (const NetworkRow& row : Networks()) {
    const bool residual = row.layers.starts_with("residual");
    bool vectors = false, learns = !row.layers.empty();
    for (const char* word : {"rnn", "vbn", "normalize", "out "})
      learns = learns && row.layers.find(word) == std::string::npos;
    vectors = row.layers.find("normalize") != std::string::npos;
    EXPECT_EQ(MakeNetwork(row.name, 84, 84, 4, 6).ok(), !residual && !vectors) << row.name;
    EXPECT_EQ(MakeNetwork(row.name, 1, 1, 4, 6).ok(),
              row.layers.find("conv") == std::string::npos && !residual)
        << row.name;
    EXPECT_EQ(MakeTorso(row.name, 84, 84, 4).ok(), learns) << row.name;
  }
}

TEST(LayerLineTest, ALineIsANetworkWithThatName) {
  const std::string line = "conv 16 8x8/4 same relu, conv 32 4x4/2 same relu, dense 256 relu";
  const auto named = MakeNetwork("Model", 84, 84, 4, 6).ValueOrThrow();
  const auto lined = MakeNetwork(line, 84, 84, 4, 6).ValueOrThrow();
  EXPECT_EQ(lined.name, line);
  EXPECT_EQ(lined.parameter_count, named.parameter_count);
  const auto a = Tensors(named), b = Tensors(lined);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].name, b[i].name);
    EXPECT_EQ(a[i].shape, b[i].shape);
    EXPECT_EQ(a[i].offset, b[i].offset);
  }
  EXPECT_EQ(MakeNetwork(lined.name, 84, 84, 4, 6).ValueOrThrow().parameter_count,
            named.parameter_count);
  EXPECT_EQ(MakeNetwork("residual 8, dense 4 relu", 84, 84, 4, 6).status().code(), Code::kConfig);
  EXPECT_EQ(MakeTorso("conv 8 3x3 relu", 84, 84, 4).status().code(), Code::kConfig);
  EXPECT_EQ(MakeTorso(line, 1, 1, 4).status().code(), Code::kConfig);
}

TEST(LayerLineTest, ProgramsRegisterNetworksOfTheirOwn) {
  EXPECT_FALSE(FindLayers("registered-2").ok());
  ASSERT_TRUE(RegisterNetwork({"registered-2", "for this test", "dense 3 tanh", ""}).ok());
  const auto made = MakeNetwork("registered-2", 1, 1, 5, 2).ValueOrThrow();
  EXPECT_EQ(made.parameter_count, 6u * 3 + 4 * 2);
  // other processes know the line, not the name
  EXPECT_EQ(made.name, "dense 3 tanh");
  EXPECT_EQ(Networks().back().name, "registered-2");
  for (const char* name : {"registered-2", "Model", "mlp-4-tanh", "", "two words"})
    EXPECT_EQ(RegisterNetwork({name, "", "dense 3 tanh", ""}).code(), Code::kConfig) << name;
  EXPECT_EQ(RegisterNetwork({"another", "", "", ""}).message(),
            "network 'another': no layers; expected at least one");
  const Status bad = RegisterNetwork({"another", "", "dense three tanh", ""});
  EXPECT_NE(bad.message().find("network 'another': layers, column 7: 'three'"), std::string::npos)
      << bad.message();
}

}  // namespace
}  // namespace samara::layer_line_test
