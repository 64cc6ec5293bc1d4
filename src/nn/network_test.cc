// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/network.h"

#include <gtest/gtest.h>

#include <cmath>

namespace samara::network_test {
namespace {

NetworkDescription Atari(std::string_view name, int64_t actions) {
  return MakeNetwork(name, 84, 84, 4, actions).ValueOrThrow();
}

NetworkDescription Vector(std::string_view name, int64_t in, int64_t out) {
  return MakeNetwork(name, 1, 1, in, out).ValueOrThrow();
}

// Counts that agree with the public run logs.
TEST(NetworkTest, PublishedParameterCountsOfImageNetworks) {
  EXPECT_EQ(Atari("LargeModel", 18).parameter_count, 4'052'658u);
  EXPECT_EQ(Atari("LargeModel", 6).parameter_count, 4'046'502u);
  EXPECT_EQ(Atari("LargeModel", 4).parameter_count, 4'045'476u);
  EXPECT_EQ(Atari("LargeModel", 3).parameter_count, 4'044'963u);
  EXPECT_EQ(Atari("LargeModel", 2).parameter_count, 4'044'450u);
  EXPECT_EQ(Atari("Nature", 18).parameter_count, 1'693'362u);
  EXPECT_EQ(Atari("Model", 18).parameter_count, 1'008'450u);
  EXPECT_EQ(Atari("Model", 6).parameter_count, 1'005'366u);
  EXPECT_EQ(Atari("Model", 4).parameter_count, 1'004'852u);
  EXPECT_EQ(Atari("Model", 3).parameter_count, 1'004'595u);
}

// Weights and biases by hand: 166,673 = 376 x 256 + 256 + 256 x 256 + 256 + 256 x 17 + 17.
TEST(NetworkTest, PublishedParameterCountsOfVectorPolicies) {
  EXPECT_EQ(Vector("mlp-256-256-tanh", 376, 17).parameter_count, 166'673u);
  EXPECT_EQ(Vector("mlp-16-16-relu", 11, 2).parameter_count, 498u);
  EXPECT_EQ(Vector("mlp-15-15-15-15-15-15-15-relu", 11, 2).parameter_count, 1'652u);
  EXPECT_EQ(Vector("linear", 376, 17).parameter_count, 6'409u);
  EXPECT_EQ(Vector("mlp-64-64-tanh", 376, 17).parameter_count, 29'393u);
  EXPECT_EQ(Vector("mlp-128-128-tanh", 28, 8).parameter_count, 21'256u);
  EXPECT_EQ(Vector("mlp-64-64-tanh", 17, 6).parameter_count, 5'702u);
  EXPECT_EQ(Vector("mlp-16-16-relu", 27, 8).parameter_count, 856u);
  EXPECT_EQ(Vector("mlp-16-16-relu", 4, 2).parameter_count, 386u);
  EXPECT_EQ(Vector("MujocoPolicy", 376, 17).evolved_count, 166'673u);
  EXPECT_EQ(Vector("MujocoPolicy", 376, 17).parameter_count, 166'673u + 2 * 376);
  EXPECT_EQ(Atari("ModelVirtualBN", 18).evolved_count, 1'008'450u);
  EXPECT_EQ(Atari("ModelVirtualBN", 18).parameter_count, 1'008'450u + 2 * 304);
  EXPECT_EQ(Atari("ESAtariPolicy", 18).evolved_count, 1'009'058u);
  EXPECT_EQ(Vector("SimpleClassifier", 11, 2).parameter_count, 498u);
  EXPECT_EQ(Vector("breadcrumb", 11, 2).parameter_count, 1'652u);
  EXPECT_EQ(Vector("breadcrumb-deep", 11, 2).parameter_count, 1'009'752u);
  EXPECT_EQ(Vector("parity", 1, 2).parameter_count, 782u);
  EXPECT_EQ(Vector("parity-20", 1, 2).parameter_count, 1'342u);
  EXPECT_EQ(Atari("GAAtariPolicy", 18).parameter_count, 1'008'450u);
}

// Counts of torch.nn.LSTM(7, 12) and torch.nn.GRU(7, 12).
TEST(NetworkTest, RecurrentLayersHaveTheParametersOfPyTorchs) {
  EXPECT_EQ(Vector("lstm 12", 7, 1).parameter_count, 1'008u + 13);
  EXPECT_EQ(Vector("gru 12", 7, 1).parameter_count, 756u + 13);
  const auto tensors = Tensors(Vector("gru 12", 7, 1));
  ASSERT_EQ(tensors.size(), 6u);
  EXPECT_EQ(tensors[0].name, "gru1.weight_ih");
  EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{7, 36}));
  EXPECT_EQ(tensors[1].name, "gru1.weight_hh");
  EXPECT_EQ(tensors[1].shape, (std::vector<int64_t>{12, 36}));
  EXPECT_EQ(tensors[1].fan_in, 12);
  EXPECT_EQ(tensors[1].fan_out, 12);
  EXPECT_EQ(tensors[2].name, "gru1.bias_ih");
  EXPECT_EQ(tensors[3].name, "gru1.bias_hh");
  EXPECT_TRUE(tensors[3].bias);
}

// TensorFlow's padding SAME: maps of ceil(84 / 4), ceil(21 / 2) and 11 rows, and of the zeros that
// they need the smaller half before the map. Weights and biases of every layer.
TEST(NetworkTest, LargeModelPadsAsTensorFlow) {
  const NetworkDescription n = Atari("LargeModel", 18);
  ASSERT_EQ(n.layers.size(), 5u);
  const int64_t maps[] = {21, 11, 11, 1, 1}, pads[] = {2, 1, 1, 0, 0};
  const size_t counts[] = {8'224, 32'832, 36'928, 3'965'440, 9'234};
  for (size_t i = 0; i < n.layers.size(); ++i) {
    const Layer& layer = n.layers[i];
    EXPECT_EQ(layer.out_height, maps[i]) << layer.name;
    EXPECT_EQ(layer.out_width, maps[i]) << layer.name;
    EXPECT_EQ(layer.pad_before, pads[i]) << layer.name;
    EXPECT_EQ(layer.pad_before_columns, pads[i]) << layer.name;
    EXPECT_EQ(layer.weight_count + static_cast<size_t>(layer.out), counts[i]) << layer.name;
  }
  EXPECT_EQ(n.layers[3].in, 7744);
  EXPECT_EQ(n.output_size(), 18u);
  EXPECT_EQ(n.input_size(), 28'224u);
}

TEST(NetworkTest, NatureHasMapsOf20And9And7) {
  const NetworkDescription n = Atari("Nature", 6);
  EXPECT_EQ(n.layers[0].out_height, 20);
  EXPECT_EQ(n.layers[1].out_height, 9);
  EXPECT_EQ(n.layers[2].out_height, 7);
  EXPECT_EQ(n.layers[3].in, 3136);
}

TEST(NetworkTest, TensorsTileTheCanonicalVector) {
  for (const auto& n : {Atari("LargeModel", 18), Atari("Model", 3), Vector("linear", 4, 2),
                        Vector("mlp-256-256-tanh", 376, 17), Vector("gru 5, 2 x lstm 6", 4, 2),
                        Vector("normalize, dense 5 vbn tanh, dense 3 vbn_affine relu", 4, 2)}) {
    size_t offset = 0;
    for (const TensorSlice& t : Tensors(n)) {
      EXPECT_EQ(t.offset, offset) << t.name;
      int64_t count = 1;
      for (int64_t d : t.shape) count *= d;
      EXPECT_EQ(t.count, static_cast<size_t>(count)) << t.name;
      EXPECT_EQ(t.output_layer, t.name.starts_with("out.")) << t.name;
      EXPECT_EQ(t.statistic, offset >= n.evolved_count) << t.name;
      offset += t.count;
    }
    EXPECT_EQ(offset, n.parameter_count) << n.name;
  }
  const auto tensors = Tensors(Atari("LargeModel", 18));
  EXPECT_EQ(tensors[0].name, "conv1.weight");
  EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{8, 8, 4, 32}));
  EXPECT_EQ(tensors[0].fan_in, 256);
  EXPECT_EQ(tensors[6].shape, (std::vector<int64_t>{7744, 512}));
  EXPECT_TRUE(tensors[7].bias);
}

TEST(NetworkTest, StatisticsComeLastWithPyTorchsNames) {
  const NetworkDescription n = Vector("normalize, dense 5 vbn tanh, dense 3 vbn_affine relu", 4, 2);
  std::vector<std::string> names;
  for (const TensorSlice& t : Tensors(n)) names.push_back(t.name);
  EXPECT_EQ(names, (std::vector<std::string>{"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias",
                                             "fc2_vbn.weight", "fc2_vbn.bias", "out.weight",
                                             "out.bias", "normalize.mean", "normalize.std",
                                             "fc1_vbn.running_mean", "fc1_vbn.running_var",
                                             "fc2_vbn.running_mean", "fc2_vbn.running_var"}));
  EXPECT_TRUE(n.needs_reference());
  EXPECT_TRUE(Vector("normalize, dense 5 tanh", 4, 2).needs_reference());
  EXPECT_FALSE(Vector("dense 5 tanh, lstm 3", 4, 2).needs_reference());
}

TEST(NetworkTest, OutputLayerHasNoActivation) {
  const NetworkDescription n = Vector("mlp-8-4-tanh", 3, 2);
  EXPECT_EQ(n.layers[0].activation, Activation::kTanh);
  EXPECT_EQ(n.layers[1].activation, Activation::kTanh);
  EXPECT_EQ(n.layers[2].activation, Activation::kNone);
}

TEST(NetworkTest, OutputLayerMayLackABias) {
  const NetworkDescription n = Vector("normalize, out no_bias none", 8, 2);
  EXPECT_EQ(n.evolved_count, 16U);
  EXPECT_EQ(n.parameter_count, 16U + 2 * 8);
  std::vector<std::string> names;
  for (const TensorSlice& t : Tensors(n)) names.push_back(t.name);
  EXPECT_EQ(names, (std::vector<std::string>{"out.weight", "normalize.mean", "normalize.std"}));
  EXPECT_EQ(Vector("dense 4 tanh, out no_bias tanh", 3, 2).parameter_count, 3 * 4 + 4 + 4 * 2U);
}

void ExpectRefused(std::string_view name, int64_t height, int64_t channels, int64_t outputs,
                   std::string_view expected) {
  const auto network = MakeNetwork(name, height, height, channels, outputs);
  ASSERT_FALSE(network.ok()) << name;
  EXPECT_EQ(network.status().code(), Code::kConfig);
  EXPECT_NE(network.status().message().find(expected), std::string::npos)
      << network.status().message();
}

TEST(NetworkTest, RefusesInOneLineThatNamesTheNearest) {
  ExpectRefused("largemodel", 84, 4, 18, "nearest is 'LargeModel'");
  ExpectRefused("liner", 1, 4, 2, "nearest is 'linear'");
  ExpectRefused("mlp-64-64-than", 1, 4, 2, "nearest is 'mlp-64-64-tanh'");
  ExpectRefused("mlp-64-rely", 1, 4, 2, "nearest is 'mlp-64-relu'");
  ExpectRefused("mlp-64-rely", 1, 4, 2,
                "mlp-<units>-..-<activation> (relu, tanh, sigmoid, elu, selu, silu, gelu, lrelu "
                "or lrelu0.2)");
  for (const char* name : {"mlp", "mlp-", "mlp-relu", "mlp--relu", "mlp-0-relu", "mlp-+4-relu",
                           "mlp-4-4", "mlp-4-relu-", "mlp-9999999999999999999-relu", ""}) {
    ExpectRefused(name, 1, 4, 2, "mlp-<units>");
  }
  ExpectRefused("LargeModel", 1, 4, 2, "needs images");
  ExpectRefused("Nature", 20, 4, 2, "smaller than its 3 x 3 window");
  ExpectRefused("linear", 1, 0, 2, "out of range");
  for (const auto& [height, width] : {std::pair{0, 1}, {1, 0}, {4097, 1}, {1, 4097}, {-1, 1}})
    EXPECT_NE(MakeNetwork("linear", height, width, 4, 2).status().message().find("out of range"),
              std::string::npos)
        << height << " x " << width;
  NetworkDescription none;
  none.height = none.width = none.channels = 1;
  EXPECT_EQ(Finish(none).message(),
            "network : input 1 x 1 x 1 with 0 layers is out of range (maps to 4096 x 4096, 1 to "
            "1025 layers)");
  none.layers.resize(kLayersMax + 1);
  EXPECT_EQ(Finish(none).code(), Code::kConfig);
  // windows that no line of layers can say
  for (const auto& [kernel, stride] : {std::pair{0, 1}, {65, 1}, {3, 0}, {3, 4}}) {
    NetworkDescription conv;
    conv.height = conv.width = 80, conv.channels = 1;
    conv.layers = {{.kind = Layer::Kind::kConv, .name = "c", .out = 1}};
    conv.layers[0].kernel = kernel, conv.layers[0].stride = stride;
    EXPECT_EQ(Finish(conv).message(), "layer c: kernel " + std::to_string(kernel) + " and stride " +
                                          std::to_string(stride) +
                                          ", expected 1 <= stride <= kernel <= 64");
  }
  EXPECT_EQ(MakeNetwork("conv 4 3x3 relu, dense 4 relu", 8, 2, 1, 2).status().message(),
            "layer conv1: a map of 8 x 2 is smaller than its 3 x 3 window; use larger "
            "observations or an mlp");
  EXPECT_EQ(MakeNetwork("normalize, dense 4 relu", 1, 2, 1, 2).status().code(), Code::kConfig);
  NetworkDescription twice;
  twice.height = twice.width = twice.channels = 1;
  twice.layers.resize(2);
  for (Layer& layer : twice.layers) layer.kind = Layer::Kind::kNormalize;
  EXPECT_NE(Finish(twice).message().find("normalize is the first layer"), std::string::npos);
  ExpectRefused("dense 4 relu, out diagonal", 1, 4, 3,
                "a diagonal of 4 inputs for 3 outputs, expected as many");
  ExpectRefused("linear", 1, 4, 0, "0 outputs");
  ExpectRefused("linear", 4096, 1 << 20, 2, "2^31 parameters");
  ExpectRefused("mlp-1048576-1048576-relu", 1, 4, 2, "2^31 parameters");
  ExpectRefused("lstm 1048576", 1, 4, 2, "2^31 parameters");
  ExpectRefused("normalize, dense 8 relu", 84, 4, 2, "normalize is the first layer of a network");
  ExpectRefused("lstm 8, dense 4 vbn relu", 1, 4, 2, "virtual batch norm after a recurrent layer");
  auto network = Vector("dense 8 vbn relu", 4, 2);
  EXPECT_EQ(SetStorage(Storage::kBf16, network).code(), Code::kConfig);
  EXPECT_TRUE(SetStorage(Storage::kFloat32, network).ok());
  network = Vector("normalize, dense 8 relu", 4, 2);
  EXPECT_TRUE(SetStorage(Storage::kInt8, network).ok());
  ExpectRefused("1024 x dense 2000 relu", 1, 4, 2, "2^31 parameters");
}

// Values of the bfloat16 format: 8 bits of mantissa, ties to even.
TEST(StorageTest, RoundsWeightsToTheNearestBfloat16) {
  const std::pair<float, float> cases[] = {
      {0.0f, 0.0f},
      {-0.0f, -0.0f},
      {1.0f, 1.0f},
      {1.00390625f, 1.0f},       // 1 + 2^-8: a tie, to even
      {1.01171875f, 1.015625f},  // 1 + 3 * 2^-8: a tie, to even
      {1.004f, 1.0078125f},      // above the tie
      {-3.14159265f, -3.140625f},
      {0x1.fffp0f, 2.0f}};
  for (const auto& [x, want] : cases) EXPECT_EQ(RoundToBf16(x), want) << x;
  auto network = MakeNetwork("mlp-3-relu", 1, 1, 2, 1).ValueOrThrow();
  std::vector<float> theta(network.parameter_count, 1.004f);
  RoundToStorage(network, theta);
  EXPECT_EQ(theta[0], 1.004f);  // float32 stays
  network.storage = Storage::kBf16;
  RoundToStorage(network, theta);
  for (const TensorSlice& slice : Tensors(network)) {
    for (size_t i = 0; i < slice.count; ++i)
      EXPECT_EQ(theta[slice.offset + i], slice.bias ? 1.004f : 1.0078125f);
  }
  EXPECT_EQ(ParseStorage("bf16").ValueOrThrow(), Storage::kBf16);
  EXPECT_EQ(ParseStorage("bf8").status().code(), Code::kConfig);
}

TEST(StorageTest, Int8IsMultiplesOfThePowerOfTwoThat127Reach) {
  EXPECT_EQ(Int8Scale(127.0f), 1.0f);
  EXPECT_EQ(Int8Scale(127.5f), 2.0f);
  EXPECT_EQ(Int8Scale(128.0f), 2.0f);
  EXPECT_EQ(Int8Scale(0.5f), 0x1p-7f);  // 64 of them
  EXPECT_EQ(Int8Scale(0.05f), 0x1p-11f);
  EXPECT_GT(Int8Scale(0.0f), 0.0f);
  const std::pair<float, int> cases[] = {{0.0f, 0},    {0.24f, 0},   {0.25f, 0},
                                         {0.26f, 1},   {0.75f, 2},   {-0.25f, 0},
                                         {-0.75f, -2}, {63.5f, 127}, {-63.5f, -127}};
  for (const auto& [x, want] : cases) EXPECT_EQ(RoundToInt8(x, 0.5f), want) << x;
  // hidden dense layers only; rounding again changes nothing
  auto network = MakeNetwork("Model", 84, 84, 4, 3).ValueOrThrow();
  network.storage = Storage::kInt8;
  std::vector<float> theta(network.parameter_count);
  for (size_t i = 0; i < theta.size(); ++i) theta[i] = std::sin(static_cast<float>(i));
  const auto before = theta;
  RoundToStorage(network, theta);
  for (const TensorSlice& slice : Tensors(network)) {
    const bool rounded = slice.name == "fc.weight";
    for (size_t i = slice.offset; i < slice.offset + slice.count; ++i) {
      const float want = rounded ? std::nearbyint(before[i] * 64) / 64 : before[i];
      ASSERT_EQ(theta[i], want) << slice.name << ' ' << i;
    }
  }
  const auto once = theta;
  RoundToStorage(network, theta);
  EXPECT_EQ(theta, once);
  EXPECT_EQ(ParseStorage("int8").ValueOrThrow(), Storage::kInt8);
}

}  // namespace
}  // namespace samara::network_test
