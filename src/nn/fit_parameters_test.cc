// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/fit_parameters.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

namespace samara::fit_parameters_test {
namespace {

NetworkDescription Make(const std::string& layers, int64_t size, int64_t channels,
                        int64_t outputs) {
  return MakeNetwork(layers, size, size, channels, outputs).ValueOrThrow();
}

std::vector<float> Numbered(size_t n, float first) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST(FitParametersTest, AnEqualNetworkIsCopiedWhole) {
  const auto network = Make("dense 5 tanh", 1, 3, 2);
  const auto from = Numbered(network.parameter_count, 1);
  std::vector<float> to(network.parameter_count);
  EXPECT_EQ(*FitParameters(network, from, network, to), from.size());
  EXPECT_EQ(to, from);
}

TEST(FitParametersTest, ALargerPerceptronTakesLeadingRowsAndColumns) {
  const auto small = Make("dense 2 tanh", 1, 3, 1),
             large = Make("dense 3 tanh, dense 4 relu", 1, 4, 2);
  // fc1 3 x 2, its bias, out 2 x 1, its bias
  const std::vector<float> from = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  std::vector<float> to(large.parameter_count, 0);
  // out of the small network reads 2 units, of the large one 4
  EXPECT_EQ(*FitParameters(small, from, large, to), 11U);
  const std::vector<float> expected = {
      1, 2, 0,  3, 4, 0, 5, 6, 0,  0, 0, 0, 7, 8, 0,     // fc1 4 x 3, bias
      0, 0, 0,  0, 0, 0, 0, 0, 0,  0, 0, 0, 0, 0, 0, 0,  // fc2 3 x 4, bias
      9, 0, 10, 0, 0, 0, 0, 0, 11, 0};                   // out 4 x 2, bias
  EXPECT_EQ(to, expected);
}

// Every weight keeps what it reads and feeds: counted by (row, column, input, output).
TEST(FitParametersTest, WeightsBehindAMapKeepTheirChannels) {
  const auto small = Make("conv 2 3x3 relu, dense 3 relu", 4, 1, 2),
             large = Make("conv 5 3x3 relu, dense 4 relu", 4, 2, 2);
  const auto from = Numbered(small.parameter_count, 1);
  std::vector<float> to(large.parameter_count, 0);
  ASSERT_TRUE(FitParameters(small, from, large, to).ok());
  const Layer &few = small.layers[1], &many = large.layers[1];
  for (int64_t position = 0; position < 4; ++position)  // of the map of 2 x 2
    for (int64_t channel = 0; channel < 5; ++channel)
      for (int64_t unit = 0; unit < 4; ++unit) {
        const float got =
            to[many.weight_offset + static_cast<size_t>((position * 5 + channel) * 4 + unit)];
        const bool copied = channel < 2 && unit < 3;
        const float expected =
            copied
                ? from[few.weight_offset + static_cast<size_t>((position * 2 + channel) * 3 + unit)]
                : 0;
        EXPECT_EQ(got, expected) << position << " " << channel << " " << unit;
      }
}

TEST(FitParametersTest, GatesOfRecurrentLayersStayGates) {
  const auto small = Make("lstm 2", 1, 3, 2), large = Make("lstm 5", 1, 3, 2);
  const auto from = Numbered(small.parameter_count, 1);
  std::vector<float> to(large.parameter_count, 0);
  ASSERT_TRUE(FitParameters(small, from, large, to).ok());
  const Layer &few = small.layers[0], &many = large.layers[0];
  for (size_t unit = 0; unit < 5; ++unit)
    for (size_t input = 0; input < 5; ++input)
      for (size_t gate = 0; gate < 4; ++gate) {
        const float got = to[many.recurrent_offset + input * 20 + gate * 5 + unit];
        const bool copied = input < 2 && unit < 2;
        EXPECT_EQ(got, copied ? from[few.recurrent_offset + input * 8 + gate * 2 + unit] : 0);
      }
}

TEST(FitParametersTest, NamesTheTensorWithoutAPlaceAndWritesNothing) {
  const auto refused = [](const NetworkDescription& from, const NetworkDescription& to) {
    std::vector<float> out(to.parameter_count, 7);
    const auto fit = FitParameters(from, std::vector<float>(from.parameter_count), to, out);
    EXPECT_EQ(out, std::vector<float>(out.size(), 7));
    EXPECT_EQ(fit.status().code(), Code::kConfig);
    return fit.status().message();
  };
  EXPECT_EQ(refused(Make("dense 5 tanh", 1, 3, 2), Make("dense 4 tanh", 1, 3, 2)),
            "fc1.weight is 3 x 5, dense 4 tanh has 3 x 4");
  EXPECT_EQ(refused(Make("dense 5 tanh, dense 5 tanh", 1, 3, 2), Make("dense 9 tanh", 1, 3, 2)),
            "fc2.weight (5 x 5) has no place in dense 9 tanh");
  EXPECT_EQ(refused(Make("dense 2 tanh", 1, 3, 2), Make("dense 2 tanh", 1, 3, 1)),
            "out.weight is 2 x 2, dense 2 tanh has 2 x 1");
}

}  // namespace
}  // namespace samara::fit_parameters_test
