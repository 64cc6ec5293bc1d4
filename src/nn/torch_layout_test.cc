// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/torch_layout.h"

#include <gtest/gtest.h>

#include <numeric>

namespace samara::torch_layout_test {
namespace {

// A 2 x 2 image of one channel, a 1 x 1 convolution to two channels, a dense layer to one output:
// 2 + 2 + 8 + 1 parameters.
NetworkDescription Tiny() {
  NetworkDescription network;
  network.name = "tiny";
  network.height = network.width = 2;
  network.channels = 1;
  Layer conv, out;
  conv.kind = Layer::Kind::kConv;
  conv.name = "conv1";
  conv.out = 2;
  conv.kernel = 1;
  out.name = "out";
  out.out = 1;
  network.layers = {conv, out};
  ThrowIfError(Finish(network));
  return network;
}

std::vector<float> Counting(size_t n) {
  std::vector<float> x(n);
  std::iota(x.begin(), x.end(), 0.0f);
  return x;
}

TEST(TorchLayoutTest, DenseColumnsAfterAMapRunChannelRowColumn) {
  const auto tensors = ToTorchLayout(Tiny(), Counting(13));
  ASSERT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors[0].name, "conv1.weight");
  EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{2, 1, 1, 1}));
  EXPECT_EQ(tensors[1].values, (std::vector<float>{2, 3}));
  // canonical rows 4.. are (y, x, channel): channel 0 holds the even ones
  EXPECT_EQ(tensors[2].name, "out.weight");
  EXPECT_EQ(tensors[2].shape, (std::vector<int64_t>{1, 8}));
  EXPECT_EQ(tensors[2].values, (std::vector<float>{4, 6, 8, 10, 5, 7, 9, 11}));
  EXPECT_EQ(tensors[3].values, (std::vector<float>{12}));
}

TEST(TorchLayoutTest, ConvolutionAndDenseAreTransposed) {
  const auto network = MakeNetwork("Model", 84, 84, 4, 6).ValueOrThrow();
  const auto tensors = ToTorchLayout(network, Counting(network.parameter_count));
  EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{16, 4, 8, 8}));
  // torch [out 5][in 3][ky 2][kx 7] is canonical [ky 2][kx 7][in 3][out 5]
  EXPECT_EQ(tensors[0].values[((5 * 4 + 3) * 8 + 2) * 8 + 7], ((2 * 8 + 7) * 4 + 3) * 16 + 5);
  EXPECT_EQ(tensors[6].shape, (std::vector<int64_t>{6, 256}));
  EXPECT_EQ(tensors[6].values[4 * 256 + 100],
            static_cast<float>(network.layers[3].weight_offset + 100 * 6 + 4));
}

TEST(TorchLayoutTest, RecurrentLayersAreThoseOfPyTorchsCells) {
  const auto network = MakeNetwork("lstm 3", 1, 1, 2, 1).ValueOrThrow();
  const auto tensors = ToTorchLayout(network, Counting(network.parameter_count));
  ASSERT_EQ(tensors.size(), 6u);
  EXPECT_EQ(tensors[0].name, "lstm1.weight_ih");
  EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{12, 2}));
  // canonical [input][gate and unit]: 12 columns
  EXPECT_EQ(std::vector<float>(tensors[0].values.begin(), tensors[0].values.begin() + 4),
            (std::vector<float>{0, 12, 1, 13}));
  EXPECT_EQ(tensors[1].name, "lstm1.weight_hh");
  EXPECT_EQ(tensors[1].shape, (std::vector<int64_t>{12, 3}));
  EXPECT_EQ(tensors[1].values[1], 24 + 12);
  EXPECT_EQ(tensors[2].name, "lstm1.bias_ih");
  EXPECT_EQ(tensors[3].name, "lstm1.bias_hh");
  EXPECT_EQ(tensors[3].values[11], 24 + 36 + 12 + 11);
}

TEST(TorchLayoutTest, PaddingOfLargeModel) {
  const auto network = MakeNetwork("LargeModel", 84, 84, 4, 18).ValueOrThrow();
  using Sides = std::array<int64_t, 4>;
  EXPECT_EQ(TorchPadding(network.layers[0]), (Sides{2, 2, 2, 2}));
  EXPECT_EQ(TorchPadding(network.layers[1]), (Sides{1, 2, 1, 2}));
  EXPECT_EQ(TorchPadding(network.layers[2]), (Sides{1, 1, 1, 1}));
  EXPECT_EQ(TorchPadding(MakeNetwork("Nature", 84, 84, 4, 18).ValueOrThrow().layers[0]), Sides{});
}

TEST(TorchLayoutTest, RoundTrip) {
  for (const char* name :
       {"LargeModel", "Nature", "mlp-16-8-tanh", "linear", "gru 3, lstm 2",
        "conv 2 8x8/8 vbn tanh, dense 3 vbn_affine relu", "conv 2 8x8/8 tanh, lstm 4"}) {
    const auto network = MakeNetwork(name, 84, 84, 4, 6).ValueOrThrow();
    const auto theta = Counting(network.parameter_count);
    EXPECT_EQ(FromTorchLayout(network, ToTorchLayout(network, theta)).ValueOrThrow(), theta);
  }
}

TEST(TorchLayoutTest, RefusesMissingRepeatedAndMisshapenTensors) {
  const auto network = Tiny();
  const auto good = ToTorchLayout(network, Counting(13));
  const auto refused = [&](std::vector<TorchTensor> tensors) {
    return FromTorchLayout(network, tensors).status().code() == Code::kBadData;
  };
  auto tensors = good;
  tensors.pop_back();
  EXPECT_TRUE(refused(tensors));
  tensors = good;
  tensors[3] = tensors[1];
  EXPECT_TRUE(refused(tensors));
  tensors = good;
  tensors[2].shape = {8, 1};
  EXPECT_TRUE(refused(tensors));
  tensors = good;
  tensors[2].values.pop_back();
  EXPECT_TRUE(refused(tensors));
  tensors = good;
  tensors[0].name = "other";
  EXPECT_TRUE(refused(tensors));
}

}  // namespace
}  // namespace samara::torch_layout_test
