// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/convolutions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/rng.h"

namespace samara::convolutions_test {
namespace {

std::vector<float> Draws(size_t n, uint64_t key, double scale = 1) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(scale * CounterRng(key).Normal(i));
  return values;
}

// The convolutions of a line for images of 11 x 9 x 3.
NetworkDescription Described(const std::string& line) {
  NetworkDescription network = MakeTorso(line + ", dense 1 none", 11, 9, 3).ValueOrThrow();
  network.layers.pop_back();
  EXPECT_TRUE(Finish(network).ok());
  return network;
}

// Convolutions, their parameters and a pass over `rows` images.
struct Case {
  Case(const std::string& line, size_t n, const kernel::Ops& ops = KernelOps(ActiveIsa()))
      : net(Convolutions::Make(Described(line), ops).ValueOrThrow()),
        canonical(Draws(net.network().parameter_count, 1, 0.3)),
        parameters(net.size()),
        images(Draws(n * net.inputs(), 2)),
        by_output(Draws(n * net.outputs(), 3)),
        pass(net.MakePass(n)),
        rows(n) {
    Set(canonical);
  }
  void Set(std::span<const float> values) {
    net.FromCanonical(values, parameters);
    std::ranges::copy(images, pass.input.data());
    net.Forward(parameters, rows, pass);
  }
  std::vector<float> Outputs() const {
    std::vector<float> all(rows * net.outputs());
    for (size_t row = 0; row < rows; ++row)
      net.CopyOutput(pass, row, std::span(all).subspan(row * net.outputs(), net.outputs()));
    return all;
  }
  std::vector<float> Gradient() {
    std::vector<float> gradient(net.size(), 7.0F);  // what is there is no part of it
    net.Backward(parameters, by_output, pass, gradient);
    return gradient;
  }

  Convolutions net;
  std::vector<float> canonical, parameters, images, by_output;
  ConvolutionPass pass;
  size_t rows;
};

constexpr const char* kLines[] = {"conv 5 3x3 relu", "conv 4 4x4/2 tanh, conv 18 2x2 elu",
                                  "conv 16 3x3/2 same relu, conv 7 3x3 same tanh",
                                  "conv 6 5x5/3 same sigmoid, conv 3 2x2/2 none"};

double Activated(Activation activation, double z) {
  switch (activation) {
    case Activation::kRelu:
      return std::max(z, 0.0);
    case Activation::kTanh:
      return std::tanh(z);
    case Activation::kElu:
      return z > 0 ? z : std::expm1(z);
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-z));
    default:
      return z;
  }
}

// The definition, pixel by pixel, in double precision: TensorFlow's SAME pads the smaller half
// before.
std::vector<double> ByDefinition(const NetworkDescription& network,
                                 const std::vector<float>& parameters, std::vector<double> map) {
  const float* p = parameters.data();
  for (const Layer& layer : network.layers) {
    const int64_t k = layer.kernel;
    const auto before = [&](int64_t in, int64_t out) {
      return layer.padding == Padding::kSame
                 ? std::max<int64_t>(0, (out - 1) * layer.stride + k - in) / 2
                 : 0;
    };
    const int64_t above = before(layer.in_height, layer.out_height);
    const int64_t left = before(layer.in_width, layer.out_width);
    std::vector<double> next;
    const float* bias = p + k * k * layer.in * layer.out;
    for (int64_t y = 0; y < layer.out_height; ++y)
      for (int64_t x = 0; x < layer.out_width; ++x)
        for (int64_t o = 0; o < layer.out; ++o) {
          double sum = bias[o];
          for (int64_t ky = 0; ky < k; ++ky)
            for (int64_t kx = 0; kx < k; ++kx)
              for (int64_t c = 0; c < layer.in; ++c) {
                const int64_t row = y * layer.stride + ky - above,
                              column = x * layer.stride + kx - left;
                if (row < 0 || row >= layer.in_height || column < 0 || column >= layer.in_width)
                  continue;
                sum += double{p[((ky * k + kx) * layer.in + c) * layer.out + o]} *
                       map[static_cast<size_t>((row * layer.in_width + column) * layer.in + c)];
              }
          next.push_back(Activated(layer.activation, sum));
        }
    map = std::move(next);
    p = bias + layer.out;
  }
  return map;
}

TEST(ConvolutionsTest, OutputsAreThoseOfTheDefinition) {
  for (const char* line : kLines) {
    const Case c(line, 3);
    const auto outputs = c.Outputs();
    for (size_t row = 0; row < 3; ++row) {
      const auto first = c.images.begin() + static_cast<ptrdiff_t>(row * c.net.inputs());
      const auto expected = ByDefinition(c.net.network(), c.canonical,
                                         {first, first + static_cast<ptrdiff_t>(c.net.inputs())});
      ASSERT_EQ(expected.size(), c.net.outputs());
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(outputs[row * expected.size() + i], expected[i], 1e-5) << line << " " << i;
    }
  }
}

// The definition's, in double precision.
TEST(ConvolutionsTest, DerivativesAreFiniteDifferences) {
  constexpr double kChange = 1e-4;
  for (const char* line : kLines) {
    Case c(line, 2);
    const auto gradient = c.net.Canonical(c.Gradient());
    const auto at = [&](size_t i, double change) {
      std::vector<float> moved = c.canonical;
      moved[i] += static_cast<float>(change);
      double sum = 0;
      for (size_t row = 0; row < 2; ++row) {
        const auto first = c.images.begin() + static_cast<ptrdiff_t>(row * c.net.inputs());
        const auto map = ByDefinition(c.net.network(), moved,
                                      {first, first + static_cast<ptrdiff_t>(c.net.inputs())});
        for (size_t o = 0; o < map.size(); ++o)
          sum += map[o] * double{c.by_output[row * map.size() + o]};
      }
      return sum;
    };
    for (size_t i = 0; i < gradient.size(); i += 1 + i % 5) {
      const auto exact = [&](double change) {
        return double{c.canonical[i] + static_cast<float>(change)};
      };
      const double width = exact(kChange) - exact(-kChange);
      EXPECT_NEAR(gradient[i], (at(i, kChange) - at(i, -kChange)) / width,
                  2e-2 * (1 + std::abs(gradient[i])))
          << line << " " << i;
    }
  }
}

TEST(ConvolutionsTest, EveryInstructionSetGivesTheSameBits) {
  for (const char* line : kLines) {
    Case first(line, 7, KernelOps(IsaLevel::kPortable));
    const auto outputs = first.Outputs(), gradient = first.Gradient();
    for (const IsaLevel isa : AvailableIsaLevels()) {
      Case c(line, 7, KernelOps(isa));
      EXPECT_EQ(c.Outputs(), outputs) << line;
      EXPECT_EQ(c.Gradient(), gradient) << line;
    }
  }
}

// Images that go together leave no trace in each other's features. 200 of them are several chunks.
TEST(ConvolutionsTest, AnImagesFeaturesDoNotDependOnTheOthers) {
  constexpr size_t kMany = 200;
  for (const char* line : kLines) {
    const Case many(line, kMany), one(line, 1);
    std::vector<float> first = many.Outputs();
    first.resize(one.net.outputs());
    EXPECT_EQ(first, one.Outputs()) << line;
  }
}

// Zeros behind the rows stay zeros, so that padded parameters can be learned as they are.
TEST(ConvolutionsTest, NothingIsLearnedInThePadding) {
  for (const char* line : kLines) {
    Case c(line, 5);
    const auto gradient = c.Gradient();
    std::vector<float> back(c.net.size());
    c.net.FromCanonical(c.net.Canonical(gradient), back);
    EXPECT_EQ(back, gradient) << line;
  }
}

TEST(ConvolutionsTest, RefusesWhatItCannotLearn) {
  for (const char* line : {"conv 4 3x3 silu", "conv 4 3x3 gelu", "residual 4"})
    EXPECT_EQ(Convolutions::Make(Described(line)).status().code(), Code::kConfig) << line;
}

}  // namespace
}  // namespace samara::convolutions_test
