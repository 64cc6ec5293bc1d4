// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/jacobian.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numbers>

#include "core/rng.h"

namespace samara::jacobian_test {
namespace {

std::vector<float> Random(uint64_t seed, size_t n, double scale) {
  const CounterRng rng(DeriveKey(seed, Purpose::kBootstrap));
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(scale * (2 * rng.Uniform(i) - 1));
  return x;
}

double Activated(double z, Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return z;
    case Activation::kRelu:
      return std::max(z, 0.0);
    case Activation::kTanh:
      return std::tanh(z);
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-z));
    case Activation::kElu:
      return z > 0 ? z : std::expm1(z);
    case Activation::kSelu:
      return 1.0507009873554805 * (z > 0 ? z : 1.6732632423543772 * std::expm1(z));
    case Activation::kSilu:
      return z / (1 + std::exp(-z));
    case Activation::kGelu:
      return z / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z * z * z)));
    case Activation::kLrelu:
      return z > 0 ? z : 0.01 * z;
    case Activation::kLrelu0p2:
      return z > 0 ? z : 0.2 * z;
  }
  return z;
}

// State of recurrent layers: hidden state and memory by layer.
using Memory = std::vector<std::pair<std::vector<double>, std::vector<double>>>;

std::vector<double> RunCell(const Layer& l, const std::vector<double>& theta,
                            const std::vector<double>& in,
                            std::pair<std::vector<double>, std::vector<double>>& memory) {
  const auto units = static_cast<size_t>(l.out), columns = static_cast<size_t>(l.columns());
  auto& [h, c] = memory;
  h.resize(units), c.resize(units);
  std::vector<double> a(columns), b(columns), next(units);
  for (size_t g = 0; g < columns; ++g) {
    a[g] = theta[l.bias_offset + g], b[g] = theta[l.recurrent_bias_offset + g];
    for (size_t i = 0; i < in.size(); ++i) a[g] += in[i] * theta[l.weight_offset + i * columns + g];
    for (size_t i = 0; i < units; ++i) b[g] += h[i] * theta[l.recurrent_offset + i * columns + g];
  }
  const auto sigmoid = [](double z) { return Activated(z, Activation::kSigmoid); };
  for (size_t u = 0; u < units; ++u) {
    const auto sum = [&](size_t gate) { return a[gate * units + u] + b[gate * units + u]; };
    if (l.kind == Layer::Kind::kRnn) {
      next[u] = Activated(sum(0), l.activation);
    } else if (l.kind == Layer::Kind::kLstm) {
      c[u] = sigmoid(sum(1)) * c[u] + sigmoid(sum(0)) * std::tanh(sum(2));
      next[u] = sigmoid(sum(3)) * std::tanh(c[u]);
    } else {
      const double r = sigmoid(sum(0)), z = sigmoid(sum(1));
      const double n = std::tanh(a[2 * units + u] + r * b[2 * units + u]);
      next[u] = (1 - z) * n + z * h[u];
    }
  }
  return h = next;
}

// The network's definition in double precision, one scalar at a time.
std::vector<double> Reference(const NetworkDescription& network, const std::vector<double>& theta,
                              std::vector<double> in, Memory& memory) {
  memory.resize(network.layers.size());
  for (const Layer& l : network.layers) {
    std::vector<double> out;
    const bool conv = l.kind == Layer::Kind::kConv;
    if (l.recurrent()) {
      in = RunCell(l, theta, in, memory[static_cast<size_t>(&l - network.layers.data())]);
      continue;
    }
    if (l.kind == Layer::Kind::kDiagonal) {
      for (size_t i = 0; i < in.size(); ++i) in[i] *= theta[l.weight_offset + i];
      continue;
    }
    for (int64_t y = 0; y < l.out_height; ++y)
      for (int64_t x = 0; x < l.out_width; ++x)
        for (int64_t o = 0; o < l.out; ++o) {
          double z = l.bias ? theta[l.bias_offset + static_cast<size_t>(o)] : 0;
          const int64_t k = conv ? l.kernel : 1;
          for (int64_t ky = 0; ky < k; ++ky)
            for (int64_t kx = 0; kx < k; ++kx) {
              const int64_t row = conv ? y * l.stride + ky - l.pad_before : 0;
              const int64_t column = conv ? x * l.stride + kx - l.pad_before_columns : 0;
              if (row < 0 || row >= l.in_height || column < 0 || column >= l.in_width) continue;
              for (int64_t c = 0; c < l.in; ++c)
                z += in[static_cast<size_t>((row * l.in_width + column) * l.in + c)] *
                     theta[l.weight_offset +
                           static_cast<size_t>(((ky * k + kx) * l.in + c) * l.out + o)];
            }
          out.push_back(Activated(z, l.activation));
        }
    in = std::move(out);
  }
  return in;
}

struct Case {
  const char* layers;
  int64_t height, width, channels, outputs;
  size_t states;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.layers; }

class JacobiansOf : public testing::TestWithParam<Case> {
 protected:
  JacobiansOf()
      : network_(MakeNetwork(GetParam().layers, GetParam().height, GetParam().width,
                             GetParam().channels, GetParam().outputs)
                     .ValueOrThrow()),
        theta_(Random(1, network_.parameter_count, 0.6)),
        inputs_(Random(2, GetParam().states * network_.input_size(), 1)) {
    // sequences of several lengths
    for (size_t x = 0; network_.recurrent() && x < GetParam().states; ++x)
      begins_.push_back(x == 0 || x == 1 || x == 4 || x == 8);
  }

  // d f_k(x) / d w by central differences: [state][output][parameter]
  std::vector<std::vector<std::vector<double>>> Differences() const {
    constexpr double kStep = 1e-6;
    const size_t p = theta_.size(), k = network_.output_size();
    std::vector<double> theta(theta_.begin(), theta_.end());
    std::vector all(GetParam().states, std::vector(k, std::vector<double>(p)));
    for (size_t w = 0; w < p; ++w) {
      const double old = theta[w];
      for (const double step : {kStep, -kStep}) {
        theta[w] = old + step;
        Memory memory;
        for (size_t x = 0; x < GetParam().states; ++x) {
          if (!begins_.empty() && begins_[x] == 1) memory.clear();
          const auto* from = inputs_.data() + x * network_.input_size();
          const auto out = Reference(network_, theta, {from, from + network_.input_size()}, memory);
          for (size_t o = 0; o < k; ++o) all[x][o][w] += out[o] / (2 * step);
        }
      }
      theta[w] = old;
    }
    return all;
  }

  const NetworkDescription network_;
  const std::vector<float> theta_, inputs_;
  std::vector<uint8_t> begins_;
};

void ExpectNear(const std::vector<float>& got, const std::vector<double>& expected,
                const char* what) {
  double size = 0;
  for (const double e : expected) size = std::max(size, std::abs(e));
  ASSERT_GT(size, 0) << what;
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], 2e-5 * size) << what << " " << i;
}

TEST_P(JacobiansOf, AgreeWithFiniteDifferences) {
  const Jacobians jacobians(network_, theta_, inputs_, begins_);
  const auto differences = Differences();
  const size_t n = GetParam().states, k = network_.output_size(), p = theta_.size();
  std::vector<float> got(p);
  for (size_t o = 0; o < k; ++o) {
    std::vector<double> sum(p), absolute(p);
    for (size_t x = 0; x < n; ++x)
      for (size_t w = 0; w < p; ++w) {
        sum[w] += differences[x][o][w];
        absolute[w] += std::abs(differences[x][o][w]);
      }
    jacobians.Sum(o, got);
    ExpectNear(got, sum, "sum");
    jacobians.SumAbs(o, got);
    ExpectNear(got, absolute, "sum of magnitudes");
  }
  const std::vector<float> v = Random(3, p, 1), u = Random(4, n * k, 1);
  std::vector<double> forward(n * k), reverse(p);
  for (size_t x = 0; x < n; ++x)
    for (size_t o = 0; o < k; ++o)
      for (size_t w = 0; w < p; ++w) {
        forward[x * k + o] += differences[x][o][w] * v[w];
        reverse[w] += differences[x][o][w] * u[x * k + o];
      }
  ExpectNear(jacobians.Times(v), forward, "J v");
  jacobians.TransposedTimes(u, got);
  ExpectNear(got, reverse, "J^T u");
}

TEST_P(JacobiansOf, HaveThePopulationKernelsOutputs) {
  const PopulationKernel kernel(network_);
  AlignedFloats packed(kernel.packed_size());
  kernel.Pack(theta_, packed.span());
  const auto workspace = kernel.MakeWorkspace();
  const Jacobians jacobians(network_, theta_, inputs_, begins_);
  std::vector<float> out(network_.output_size()), state;
  for (size_t x = 0; x < GetParam().states; ++x) {
    if (x == 0 || (!begins_.empty() && begins_[x] == 1)) state.assign(kernel.state_size(), 0);
    kernel.Forward(packed.data(), inputs_.data() + x * network_.input_size(), *workspace,
                   out.data(), state.data());
    for (size_t o = 0; o < out.size(); ++o)
      ASSERT_EQ(std::bit_cast<uint32_t>(out[o]),
                std::bit_cast<uint32_t>(jacobians.outputs()[x * out.size() + o]));
  }
}

TEST_P(JacobiansOf, HaveEqualBitsOnEveryInstructionSet) {
  const std::vector<float> v = Random(3, theta_.size(), 1);
  std::vector<std::vector<float>> all;
  for (const IsaLevel isa : AvailableIsaLevels()) {
    const Jacobians jacobians(network_, theta_, inputs_, begins_, isa);
    std::vector<float> values(2 * theta_.size());
    jacobians.Sum(0, std::span(values).first(theta_.size()));
    jacobians.SumAbs(network_.output_size() - 1, std::span(values).subspan(theta_.size()));
    for (const float value : jacobians.Times(v)) values.push_back(value);
    values.insert(values.end(), jacobians.outputs().begin(), jacobians.outputs().end());
    all.push_back(std::move(values));
  }
  for (const auto& values : all) {
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(all[0][i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Networks, JacobiansOf,
    testing::Values(Case{"linear", 1, 1, 3, 2, 1},
                    Case{"dense 7 tanh, dense 5 relu", 1, 1, 4, 3, 9},
                    Case{"dense 9 relu, dense 33 tanh", 1, 1, 2, 17, 18},
                    Case{"conv 3 3x3/2 same tanh, conv 5 2x2 relu, dense 4 tanh", 7, 6, 2, 2, 3},
                    Case{"conv 4 3x3 relu", 5, 5, 1, 2, 18}, Case{"out diagonal", 1, 1, 3, 3, 5},
                    Case{"dense 5 tanh, out no_bias tanh", 1, 1, 3, 2, 7},
                    Case{"dense 6 sigmoid, dense 5 elu, dense 4 selu, out sigmoid", 1, 1, 3, 2, 7},
                    Case{"dense 6 silu, dense 5 lrelu, dense 4 lrelu0.2, dense 5 gelu", 1, 1, 3, 2,
                         7},
                    Case{"rnn 5 tanh, rnn 4 relu", 1, 1, 2, 2, 11},
                    Case{"dense 4 tanh, lstm 5, dense 3 tanh", 1, 1, 2, 2, 11},
                    Case{"gru 5, gru 3", 1, 1, 2, 3, 9},
                    Case{"conv 2 2x2 relu, gru 4, out diagonal", 3, 3, 1, 4, 9}));

// A weight that a convolution uses at two pixels: its terms are added before the magnitude is
// taken, and cancel within a state, but not between states.
TEST(Jacobians, TakeMagnitudesByState) {
  const auto network = MakeNetwork("conv 1 1x1 none", 1, 2, 1, 1).ValueOrThrow();
  // out = a w x0 + b w x1 with output weights a = 1, b = 1
  std::vector<float> theta(network.parameter_count);
  theta[network.layers[0].weight_offset] = 2;
  theta[network.layers[1].weight_offset] = theta[network.layers[1].weight_offset + 1] = 1;
  const std::vector<float> inputs = {1, -1, 3, 0, -3, 0};  // df/dw = 0, 3, -3
  const Jacobians jacobians(network, theta, inputs);
  std::vector<float> sum(theta.size()), magnitudes(theta.size());
  jacobians.Sum(0, sum);
  jacobians.SumAbs(0, magnitudes);
  EXPECT_EQ(sum[0], 0);
  EXPECT_EQ(magnitudes[0], 6);
}

}  // namespace
}  // namespace samara::jacobian_test
