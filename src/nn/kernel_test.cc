// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/kernel.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <numbers>

#include "core/rng.h"

namespace samara::kernel_test {
namespace {

// Uniform on [-1, 1) with a share of exact zeros.
std::vector<float> Random(uint64_t seed, size_t n, double zeros = 0) {
  const CounterRng rng(DeriveKey(seed, Purpose::kBootstrap));
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) {
    x[i] = rng.Uniform(2 * i) < zeros ? 0.0f : static_cast<float>(2 * rng.Uniform(2 * i + 1) - 1);
  }
  return x;
}

// The definition (kernel.h), one scalar chain at a time, from the canonical vector.
float Chain(const Layer& layer, const float* theta, const std::vector<float>& in, int64_t y,
            int64_t x, int64_t out) {
  const float* weight = theta + layer.weight_offset;
  float sum = theta[layer.bias_offset + static_cast<size_t>(out)];
  if (layer.kind == Layer::Kind::kDense) {
    for (size_t i = 0; i < in.size(); ++i) {
      if (in[i] != 0) sum = std::fmaf(in[i], weight[i * static_cast<size_t>(layer.out) + out], sum);
    }
    return sum;
  }
  for (int64_t ky = 0; ky < layer.kernel; ++ky) {
    for (int64_t kx = 0; kx < layer.kernel; ++kx) {
      const int64_t row = y * layer.stride + ky - layer.pad_before;
      const int64_t column = x * layer.stride + kx - layer.pad_before_columns;
      if (row < 0 || row >= layer.in_height || column < 0 || column >= layer.in_width) continue;
      for (int64_t c = 0; c < layer.in; ++c) {
        const float a = in[(row * layer.in_width + column) * layer.in + c];
        const float w = weight[((ky * layer.kernel + kx) * layer.in + c) * layer.out + out];
        if (a != 0) sum = std::fmaf(a, w, sum);
      }
    }
  }
  return sum;
}

std::vector<float> Reference(const NetworkDescription& network, const std::vector<float>& theta,
                             std::vector<float> in) {
  for (const Layer& layer : network.layers) {
    std::vector<float> out;
    for (int64_t y = 0; y < layer.out_height; ++y) {
      for (int64_t x = 0; x < layer.out_width; ++x) {
        for (int64_t c = 0; c < layer.out; ++c) {
          const float sum = Chain(layer, theta.data(), in, y, x, c);
          const float relu = layer.activation == Activation::kRelu && sum < 0 ? 0.0f : sum;
          out.push_back(layer.activation == Activation::kTanh ? std::tanh(sum) : relu + 0.0f);
        }
      }
    }
    in = std::move(out);
  }
  return in;
}

std::vector<float> Forward(const NetworkDescription& network, IsaLevel isa,
                           const std::vector<float>& theta, const std::vector<float>& in) {
  const PopulationKernel kernel(network, isa);
  AlignedFloats packed(kernel.packed_size());
  kernel.Pack(theta, packed.span());
  const auto workspace = kernel.MakeWorkspace();
  std::vector<float> out(network.output_size());
  kernel.Forward(packed.data(), in.data(), *workspace, out.data());
  return out;
}

std::vector<uint32_t> Bits(const std::vector<float>& x) {
  std::vector<uint32_t> bits;
  for (float f : x) bits.push_back(std::bit_cast<uint32_t>(f));
  return bits;
}

// A random stack of convolutions (odd channel counts, both paddings) and dense layers.
NetworkDescription RandomNetwork(uint64_t seed, Activation activation) {
  const CounterRng rng(DeriveKey(seed, Purpose::kBootstrap, 1));
  uint64_t draw = 0;
  const auto pick = [&](uint64_t low, uint64_t high) {
    return static_cast<int64_t>(low + rng.UniformInt(draw++, high - low + 1));
  };
  NetworkDescription network;
  network.name = "random";
  network.height = pick(9, 23);
  network.width = pick(9, 23);
  network.channels = pick(1, 5);
  const int64_t convolutions = pick(0, 3), dense = pick(0, 2);
  for (int64_t i = 0; i < convolutions + dense + 1; ++i) {
    Layer layer;
    layer.name = "layer" + std::to_string(i);
    layer.kind = i < convolutions ? Layer::Kind::kConv : Layer::Kind::kDense;
    layer.out = pick(1, 70);
    layer.kernel = pick(1, i == 0 ? 8 : 3);
    layer.stride = pick(1, static_cast<uint64_t>(std::min<int64_t>(2, layer.kernel)));
    // a later VALID window may not fit its map
    layer.padding = i == 0 && pick(0, 1) == 0 ? Padding::kValid : Padding::kSame;
    layer.activation = i == convolutions + dense ? Activation::kNone : activation;
    network.layers.push_back(layer);
  }
  ThrowIfError(Finish(network));
  return network;
}

TEST(PopulationKernelTest, EveryIsaGivesTheBitsOfTheScalarChains) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const auto network = RandomNetwork(seed, seed % 2 == 0 ? Activation::kRelu : Activation::kNone);
    const auto theta = Random(seed, network.parameter_count, 0.01);
    const auto in = Random(seed + 1000, network.input_size(), 0.25 * static_cast<double>(seed % 5));
    const auto expected = Bits(Reference(network, theta, in));
    for (IsaLevel isa : AvailableIsaLevels()) {
      EXPECT_EQ(Bits(Forward(network, isa, theta, in)), expected) << Name(isa) << " seed " << seed;
    }
  }
}

TEST(PopulationKernelTest, EveryIsaGivesTheBitsOfTheScalarChainsOnNamedNetworks) {
  const NetworkDescription networks[] = {MakeNetwork("LargeModel", 84, 84, 4, 18).ValueOrThrow(),
                                         MakeNetwork("Model", 84, 84, 4, 6).ValueOrThrow(),
                                         MakeNetwork("Nature", 84, 84, 4, 3).ValueOrThrow(),
                                         MakeNetwork("mlp-16-16-relu", 1, 1, 11, 2).ValueOrThrow(),
                                         MakeNetwork("linear", 1, 1, 376, 17).ValueOrThrow()};
  for (const auto& network : networks) {
    const auto theta = Random(7, network.parameter_count);
    const auto in = Random(8, network.input_size(), 0.3);
    const auto expected = Bits(Reference(network, theta, in));
    for (IsaLevel isa : AvailableIsaLevels()) {
      EXPECT_EQ(Bits(Forward(network, isa, theta, in)), expected)
          << network.name << ' ' << Name(isa);
    }
  }
}

// The last small layers run in one call, but one by one where they are measured.
TEST(PopulationKernelTest, SmallLayersInOneCallGiveTheBitsOfOneByOne) {
  const std::pair<const char*, int64_t> networks[] = {
      {"dense 32 tanh, dense 17 elu", 4},
      {"dense 33 relu, dense 32 relu", 4},
      {"dense 16 tanh, dense 16 relu", 17},
      {"dense 32 relu", 128},
      {"dense 32 relu", 129},
      {"dense 128 tanh, dense 129 relu, dense 8 tanh", 5},
      {"normalize, dense 32 tanh", 9},
      {"lstm 8, dense 32 silu", 6},
      {"4 x dense 20 relu", 33}};
  for (const auto& [line, inputs] : networks) {
    const auto network = MakeNetwork(line, 1, 1, inputs, 3).ValueOrThrow();
    const auto theta = Random(31, network.parameter_count, 0.01);
    const auto in = Random(32, network.input_size(), 0.3);
    std::vector<uint32_t> expected;
    for (const IsaLevel isa : AvailableIsaLevels()) {
      const PopulationKernel kernel(network, isa);
      AlignedFloats packed(kernel.packed_size());
      kernel.Pack(theta, packed.span());
      for (const bool measured : {true, false}) {
        const auto workspace = kernel.MakeWorkspace();
        if (measured) workspace->MeasureLayers();
        AlignedFloats state(kernel.state_size());
        std::vector<float> out(network.output_size());
        for (int step = 0; step < 2; ++step)
          kernel.Forward(packed.data(), in.data(), *workspace, out.data(), state.data());
        if (expected.empty()) expected = Bits(out);
        EXPECT_EQ(Bits(out), expected) << line << ' ' << Name(isa) << ' ' << measured;
      }
    }
  }
}

// One to four different networks.
TEST(PopulationKernelTest, SmallNetworksSideBySideGiveTheBitsOfEachAlone) {
  for (const char* line : {"dense 16 relu, dense 16 relu", "dense 32 tanh, dense 17 elu",
                           "dense 9 tanh, dense 25 sigmoid, out tanh", "out none"}) {
    const auto network = MakeNetwork(line, 1, 1, 11, 3).ValueOrThrow();
    for (const IsaLevel isa : AvailableIsaLevels()) {
      const PopulationKernel kernel(network, isa);
      ASSERT_TRUE(kernel.small());
      const auto workspace = kernel.MakeWorkspace();
      std::vector<AlignedFloats> packed;
      std::vector<std::vector<float>> in, out(4, std::vector<float>(3)), alone = out;
      std::vector<const float*> packed_of, in_of;
      std::vector<float*> out_of;
      for (uint64_t n = 0; n < 4; ++n) {
        packed.emplace_back(kernel.packed_size());
        kernel.Pack(Random(40 + n, network.parameter_count, 0.01), packed.back().span());
        in.push_back(Random(60 + n, 11, 0.3));
        kernel.Forward(packed[n].data(), in[n].data(), *workspace, alone[n].data());
        packed_of.push_back(packed[n].data());
        out_of.push_back(out[n].data());
      }
      for (const auto& x : in) in_of.push_back(x.data());
      for (size_t n = 1; n <= 4; ++n) {
        for (auto& o : out) o.assign(3, -7);
        kernel.ForwardSmall(std::span(packed_of).first(n), std::span(in_of).first(n), *workspace,
                            std::span(out_of).first(n));
        for (size_t i = 0; i < 4; ++i)
          EXPECT_EQ(Bits(out[i]), i < n ? Bits(alone[i]) : Bits({-7, -7, -7}))
              << line << ' ' << Name(isa) << ' ' << i << '/' << n;
      }
    }
  }
  const auto small = [](const char* line, int64_t inputs) {
    return PopulationKernel(MakeNetwork(line, 1, 1, inputs, 3).ValueOrThrow()).small();
  };
  EXPECT_FALSE(small("dense 33 relu", 4) || small("lstm 8", 4) || small("dense 8 relu", 129));
}

// Storage only: the chains of the rounded weights, in float32.
TEST(PopulationKernelTest, StorageGivesTheBitsOfTheScalarChainsOfRoundedWeights) {
  std::vector<NetworkDescription> networks;
  for (uint64_t seed = 0; seed < 25; ++seed)
    networks.push_back(RandomNetwork(seed, seed % 2 == 0 ? Activation::kRelu : Activation::kNone));
  networks.push_back(MakeNetwork("Model", 84, 84, 4, 18).ValueOrThrow());
  networks.push_back(MakeNetwork("mlp-200-64-65-relu", 1, 1, 30, 3).ValueOrThrow());
  for (NetworkDescription& network : networks) {
    for (const Storage storage : {Storage::kBf16, Storage::kInt8}) {
      network.storage = storage;
      const auto theta = Random(5, network.parameter_count, 0.01);
      const auto in = Random(6, network.input_size(), 0.4);
      auto rounded = theta;
      RoundToStorage(network, rounded);
      const auto expected = Bits(Reference(network, rounded, in));
      for (IsaLevel isa : AvailableIsaLevels()) {
        EXPECT_EQ(Bits(Forward(network, isa, theta, in)), expected)
            << network.name << ' ' << Name(storage) << ' ' << Name(isa);
        EXPECT_EQ(Bits(Forward(network, isa, rounded, in)), expected)
            << network.name << ' ' << Name(storage) << ' ' << Name(isa);
      }
    }
  }
}

// Any number of observations of one network, on every path from one by one to full tiles.
TEST(PopulationKernelTest, SeveralObservationsGiveTheBitsOfEachAlone) {
  std::vector<NetworkDescription> networks;
  for (uint64_t seed = 0; seed < 6; ++seed)
    networks.push_back(RandomNetwork(seed, seed % 2 == 0 ? Activation::kRelu : Activation::kTanh));
  networks.push_back(MakeNetwork("Model", 42, 42, 4, 18).ValueOrThrow());
  networks.push_back(MakeNetwork("mlp-200-64-65-relu", 1, 1, 30, 3).ValueOrThrow());
  networks.push_back(MakeNetwork("linear", 1, 1, 300, 2).ValueOrThrow());
  uint64_t seed = 300;
  for (NetworkDescription& network : networks) {
    for (const Storage storage : {Storage::kFloat32, Storage::kBf16, Storage::kInt8}) {
      network.storage = storage;
      const auto theta = Random(++seed, network.parameter_count, 0.01);
      std::vector<std::vector<float>> inputs;
      std::vector<std::vector<uint32_t>> alone;
      for (size_t i = 0; i < 21; ++i) {
        // the third is all zeros
        inputs.push_back(Random(++seed, network.input_size(), i == 2 ? 1.0 : 0.5));
        alone.push_back(Bits(Forward(network, IsaLevel::kPortable, theta, inputs.back())));
      }
      std::vector<const float*> pointers;
      for (const auto& input : inputs) pointers.push_back(input.data());
      for (IsaLevel isa : AvailableIsaLevels()) {
        const PopulationKernel kernel(network, isa);
        AlignedFloats packed(kernel.packed_size());
        kernel.Pack(theta, packed.span());
        const auto workspace = kernel.MakeWorkspace();
        for (const size_t n : {21, 1, 4, 3, 16, 9}) {
          std::vector<float> out(n * network.output_size());
          kernel.ForwardMany(packed.data(), std::span(pointers).first(n), *workspace, out.data());
          for (size_t i = 0; i < n; ++i) {
            const std::span row =
                std::span(out).subspan(i * network.output_size(), network.output_size());
            EXPECT_EQ(Bits({row.begin(), row.end()}), alone[i])
                << network.name << ' ' << Name(storage) << ' ' << Name(isa) << ' ' << i << '/' << n;
          }
        }
      }
    }
  }
}

TEST(PopulationKernelTest, EveryIsaGivesTheBitsOfThePortableTanh) {
  for (uint64_t seed = 100; seed < 120; ++seed) {
    const auto network = RandomNetwork(seed, Activation::kTanh);
    auto theta = Random(seed, network.parameter_count);
    const auto in = Random(seed + 1000, network.input_size(), 0.2);
    const auto expected = Forward(network, IsaLevel::kPortable, theta, in);
    for (IsaLevel isa : AvailableIsaLevels()) {
      EXPECT_EQ(Bits(Forward(network, isa, theta, in)), Bits(expected)) << Name(isa);
    }
    // against libm: the error of tanh, 5 ulp a layer, grows with the weights it then meets
    const auto libm = Reference(network, theta, in);
    for (size_t i = 0; i < libm.size(); ++i) EXPECT_NEAR(expected[i], libm[i], 2e-4);
  }
}

// x -> tanh(x), each value through one hidden unit of its own.
TEST(PopulationKernelTest, TanhIsWithinFiveUlpOfTheTrueOne) {
  std::vector<float> xs = {0.0f, 1e-30f, 1e-8f, 0x1p-126f, 8.9f, 9.01f, 9.02f, 10.0f, 88.0f, 3e38f};
  for (int i = 1; i < 4000; ++i) xs.push_back(static_cast<float>(i) * 0.0025f);
  for (size_t i = 0; i < 10; ++i) xs.push_back(-xs[i]);
  NetworkDescription network;
  network.channels = 1;
  Layer layer;
  layer.out = static_cast<int64_t>(xs.size());
  layer.activation = Activation::kTanh;
  network.layers = {layer};
  ThrowIfError(Finish(network));
  std::vector<float> theta = xs;
  theta.resize(2 * xs.size(), 0.0f);
  for (IsaLevel isa : AvailableIsaLevels()) {
    const auto y = Forward(network, isa, theta, {1.0f});
    for (size_t i = 0; i < xs.size(); ++i) {
      const double exact = std::tanh(static_cast<double>(xs[i]));
      const double ulp = std::nextafter(std::abs(static_cast<float>(exact)), 2.0f) -
                         std::abs(static_cast<float>(exact));
      EXPECT_NEAR(y[i], exact, 5 * ulp) << xs[i];
      EXPECT_LE(std::abs(y[i]), 1.0f);
    }
  }
}

// x -> activation(x), each value through one hidden unit of its own.
TEST(PopulationKernelTest, ActivationsAreTheTrueOnesWithinRounding) {
  const auto elu = [](double x) { return x > 0 ? x : std::expm1(x); };
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const std::map<Activation, std::function<double(double)>> exact = {
      {Activation::kNone, [](double x) { return x; }},
      {Activation::kRelu, [](double x) { return std::max(0.0, x); }},
      {Activation::kTanh, [](double x) { return std::tanh(x); }},
      {Activation::kSigmoid, sigmoid},
      {Activation::kElu, elu},
      {Activation::kSelu,
       [&](double x) {
         return 1.0507009873554804934193349852946 *
                (x > 0 ? x : 1.6732632423543772848170429916717 * std::expm1(x));
       }},
      {Activation::kSilu, [&](double x) { return x * sigmoid(x); }},
      {Activation::kGelu,
       [](double x) {
         return x / 2 *
                (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
       }},
      {Activation::kLrelu, [](double x) { return x > 0 ? x : 0.01 * x; }},
      {Activation::kLrelu0p2, [](double x) { return x > 0 ? x : 0.2 * x; }}};
  ASSERT_EQ(exact.size(), std::size(kActivationNames));
  std::vector<float> xs = {0.0f, -0.0f, 1e-30f, -1e-30f, 88.0f, -88.0f, 1000.0f, -1000.0f};
  for (int i = -2000; i < 2000; ++i) xs.push_back(static_cast<float>(i) * 0.0125f);
  for (const auto& [activation, name] : kActivationNames) {
    const std::string line = "dense " + std::to_string(xs.size()) + " none, out ";
    auto network = MakeNetwork(line + std::string(name), 1, 1, 1, 1).ValueOrThrow();
    network.layers = {network.layers[0]};
    network.layers[0].activation = activation;
    ThrowIfError(Finish(network));
    std::vector<float> theta = xs;
    theta.resize(2 * xs.size(), 0.0f);
    const auto portable = Forward(network, IsaLevel::kPortable, theta, {1.0f});
    for (size_t i = 0; i < xs.size(); ++i) {
      const double want = exact.at(activation)(xs[i]);
      // the sigmoid's error is absolute: 1.8e-7
      const bool product = activation == Activation::kSilu || activation == Activation::kGelu;
      const double scale = product ? std::abs(xs[i]) : 1.0;
      EXPECT_NEAR(portable[i], want, 3e-7 * std::max(scale, std::abs(want))) << name << xs[i];
      if (activation == Activation::kElu) {
        EXPECT_NEAR(portable[i], want, 2e-6 * std::abs(want));
      }
      EXPECT_FALSE(portable[i] == 0 && std::signbit(portable[i])) << name << ' ' << xs[i];
    }
    for (IsaLevel isa : AvailableIsaLevels())
      EXPECT_EQ(Bits(Forward(network, isa, theta, {1.0f})), Bits(portable)) << name << Name(isa);
    theta[0] = std::nanf("");
    for (IsaLevel isa : AvailableIsaLevels())
      EXPECT_TRUE(std::isnan(Forward(network, isa, theta, {1.0f})[0])) << name << Name(isa);
  }
}

TEST(PopulationKernelTest, TheOutputLayerTakesTheActivationOfItsLine) {
  const auto network = MakeNetwork("out tanh", 1, 1, 2, 3).ValueOrThrow();
  EXPECT_EQ(network.parameter_count, 9u);
  const std::vector<float> theta = {1, 2, 3, 0, 0, 0, 0, 0, 0.5f};
  const auto out = Forward(network, ActiveIsa(), theta, {1, 7});
  EXPECT_NEAR(out[0], std::tanh(1.0), 1e-6);
  EXPECT_NEAR(out[2], std::tanh(3.5), 1e-6);
}

// ---- recurrent layers

// PyTorch's formulas in float64, for a network of recurrent and dense layers.
class NaiveRecurrent {
 public:
  NaiveRecurrent(const NetworkDescription& network, const std::vector<float>& theta)
      : network_(network), theta_(theta), hidden_(network.layers.size()), memory_(hidden_) {
    for (size_t i = 0; i < network.layers.size(); ++i)
      hidden_[i] = memory_[i] = std::vector<double>(static_cast<size_t>(network.layers[i].out));
  }

  std::vector<double> Step(const std::vector<float>& input) {
    std::vector<double> x(input.begin(), input.end());
    for (size_t i = 0; i < network_.layers.size(); ++i) {
      const Layer& layer = network_.layers[i];
      const auto columns = static_cast<size_t>(layer.columns());
      auto a = Sums(x, layer.weight_offset, layer.bias_offset, columns);
      if (!layer.recurrent()) {
        if (layer.activation == Activation::kTanh)
          for (double& v : a) v = std::tanh(v);
        x = a;
        continue;
      }
      const auto b = Sums(hidden_[i], layer.recurrent_offset, layer.recurrent_bias_offset, columns);
      for (size_t u = 0; u < hidden_[i].size(); ++u) Unit(layer, i, u, a, b);
      x = hidden_[i];
    }
    return x;
  }

 private:
  static double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

  void Unit(const Layer& layer, size_t i, size_t u, const std::vector<double>& a,
            const std::vector<double>& b) {
    const size_t n = hidden_[i].size();
    double& h = hidden_[i][u];
    if (layer.kind == Layer::Kind::kRnn) {
      h = layer.activation == Activation::kRelu ? std::max(0.0, a[u] + b[u])
                                                : std::tanh(a[u] + b[u]);
    } else if (layer.kind == Layer::Kind::kGru) {
      const double r = Sigmoid(a[u] + b[u]), z = Sigmoid(a[n + u] + b[n + u]);
      h = (1 - z) * std::tanh(a[2 * n + u] + r * b[2 * n + u]) + z * h;
    } else {
      const auto gate = [&](size_t g) { return a[g * n + u] + b[g * n + u]; };
      double& c = memory_[i][u];
      c = Sigmoid(gate(1)) * c + Sigmoid(gate(0)) * std::tanh(gate(2));
      h = Sigmoid(gate(3)) * std::tanh(c);
    }
  }

  std::vector<double> Sums(const std::vector<double>& x, size_t weights, size_t bias,
                           size_t columns) const {
    std::vector<double> sums(columns);
    for (size_t c = 0; c < columns; ++c) {
      sums[c] = theta_[bias + c];
      for (size_t i = 0; i < x.size(); ++i) sums[c] += x[i] * theta_[weights + i * columns + c];
    }
    return sums;
  }

  const NetworkDescription& network_;
  const std::vector<float>& theta_;
  std::vector<std::vector<double>> hidden_, memory_;
};

const char* const kRecurrent[] = {
    "rnn 1 tanh", "2 x rnn 15 tanh", "rnn 33 relu",
    "lstm 5",     "2 x lstm 16",     "dense 9 tanh, lstm 17, dense 4 tanh",
    "gru 3",      "2 x gru 20",      "gru 16, lstm 7, rnn 8 tanh"};

// Small enough that many steps of an rnn of ReLUs stay finite.
std::vector<float> RecurrentParameters(const NetworkDescription& network, uint64_t seed) {
  auto theta = Random(seed, network.parameter_count);
  for (const TensorSlice& slice : Tensors(network))
    for (size_t i = 0; i < slice.count && !slice.bias; ++i)
      theta[slice.offset + i] *= static_cast<float>(1.5 / std::sqrt(slice.fan_in));
  return theta;
}

TEST(RecurrentKernelTest, CellsComputePyTorchsFormulasOnEveryIsa) {
  uint64_t seed = 500;
  for (const char* line : kRecurrent) {
    const auto network = MakeNetwork(line, 1, 1, 6, 3).ValueOrThrow();
    const auto theta = RecurrentParameters(network, ++seed);
    std::vector<std::vector<float>> portable;
    for (IsaLevel isa : AvailableIsaLevels()) {
      const PopulationKernel kernel(network, isa);
      AlignedFloats packed(kernel.packed_size()), state(kernel.state_size());
      ASSERT_GT(state.size(), 0u);
      kernel.Pack(theta, packed.span());
      const auto workspace = kernel.MakeWorkspace();
      NaiveRecurrent naive(network, theta);
      for (size_t t = 0; t < 12; ++t) {
        const auto in = Random(900 + t, network.input_size(), 0.2);
        std::vector<float> out(network.output_size());
        kernel.Forward(packed.data(), in.data(), *workspace, out.data(), state.data());
        const auto want = naive.Step(in);
        for (size_t i = 0; i < out.size(); ++i)
          EXPECT_NEAR(out[i], want[i], 3e-6) << line << " step " << t << ' ' << Name(isa);
        if (portable.size() == t) portable.push_back(out);
        EXPECT_EQ(Bits(out), Bits(portable[t])) << line << " step " << t << ' ' << Name(isa);
      }
    }
  }
}

// A layer of ReLUs has no approximation: two chains of fused multiply-adds and their sum.
TEST(RecurrentKernelTest, StatesAreTheBitsOfTheScalarChains) {
  const auto network = MakeNetwork("rnn 37 relu", 1, 1, 5, 1).ValueOrThrow();
  const auto theta = RecurrentParameters(network, 3);
  const Layer& layer = network.layers[0];
  const auto chain = [&](std::span<const float> x, size_t weights, size_t bias, size_t unit) {
    float sum = theta[bias + unit];
    for (size_t i = 0; i < x.size(); ++i)
      if (x[i] != 0) sum = std::fmaf(x[i], theta[weights + i * 37 + unit], sum);
    return sum + 0.0f;
  };
  for (IsaLevel isa : AvailableIsaLevels()) {
    const PopulationKernel kernel(network, isa);
    AlignedFloats packed(kernel.packed_size()), state(kernel.state_size());
    kernel.Pack(theta, packed.span());
    const auto workspace = kernel.MakeWorkspace();
    std::vector<float> hidden(37);
    for (size_t t = 0; t < 8; ++t) {
      const auto in = Random(70 + t, 5, 0.3);
      std::vector<float> next;
      for (size_t u = 0; u < 37; ++u)
        next.push_back(std::max(0.0f, chain(in, layer.weight_offset, layer.bias_offset, u) +
                                          chain(hidden, layer.recurrent_offset,
                                                layer.recurrent_bias_offset, u)) +
                       0.0f);
      hidden = next;
      float out = 0;
      kernel.Forward(packed.data(), in.data(), *workspace, &out, state.data());
      const auto now = state.span().first(37);
      EXPECT_EQ(Bits({now.begin(), now.end()}), Bits(hidden)) << Name(isa) << " step " << t;
    }
  }
}

// Episodes of one network side by side, in any number, share neither state nor bits.
TEST(RecurrentKernelTest, SeveralEpisodesGiveTheBitsOfEachAlone) {
  uint64_t seed = 40;
  for (const char* line : kRecurrent) {
    for (const Storage storage : {Storage::kFloat32, Storage::kBf16, Storage::kInt8}) {
      auto network = MakeNetwork(line, 1, 1, 6, 3).ValueOrThrow();
      network.storage = storage;
      const auto theta = RecurrentParameters(network, ++seed);
      for (IsaLevel isa : AvailableIsaLevels()) {
        const PopulationKernel kernel(network, isa);
        AlignedFloats packed(kernel.packed_size());
        kernel.Pack(theta, packed.span());
        const auto workspace = kernel.MakeWorkspace();
        std::vector<AlignedFloats> alone, together;
        std::vector<float*> states;
        std::vector<std::vector<float>> in(21);
        std::vector<const float*> inputs(21);
        for (size_t e = 0; e < 21; ++e) {
          alone.emplace_back(kernel.state_size());
          states.push_back(together.emplace_back(kernel.state_size()).data());
        }
        for (const size_t n : {21, 4, 1, 18, 3}) {
          std::vector<float> out(n * 3), one(3);
          for (size_t e = 0; e < n; ++e) in[e] = Random(++seed, 6, 0.2), inputs[e] = in[e].data();
          kernel.ForwardMany(packed.data(), std::span(inputs).first(n), *workspace, out.data(),
                             std::span(states).first(n));
          for (size_t e = 0; e < n; ++e) {
            kernel.Forward(packed.data(), inputs[e], *workspace, one.data(), alone[e].data());
            EXPECT_EQ(Bits(one), Bits({out.begin() + static_cast<ptrdiff_t>(3 * e),
                                       out.begin() + static_cast<ptrdiff_t>(3 * e + 3)}))
                << line << ' ' << Name(storage) << ' ' << Name(isa) << ' ' << e << '/' << n;
          }
        }
      }
    }
  }
}

// bf16 and int8 weights of recurrent layers are the rounded ones of RoundToStorage.
TEST(RecurrentKernelTest, StorageRoundsBothMatrices) {
  for (const Storage storage : {Storage::kBf16, Storage::kInt8}) {
    auto network = MakeNetwork("lstm 17, gru 8", 1, 1, 6, 3).ValueOrThrow();
    const auto theta = RecurrentParameters(network, 11);
    auto rounded = theta;
    auto stored = network;
    stored.storage = storage;
    RoundToStorage(stored, rounded);
    EXPECT_NE(rounded, theta);
    for (IsaLevel isa : AvailableIsaLevels()) {
      const PopulationKernel wide(network, isa), narrow(stored, isa);
      AlignedFloats a(wide.packed_size()), b(narrow.packed_size());
      wide.Pack(rounded, a.span());
      narrow.Pack(theta, b.span());
      AlignedFloats state_a(wide.state_size()), state_b(narrow.state_size());
      const auto workspace_a = wide.MakeWorkspace(), workspace_b = narrow.MakeWorkspace();
      for (uint64_t t = 0; t < 4; ++t) {
        const auto in = Random(t, 6);
        std::vector<float> out_a(3), out_b(3);
        wide.Forward(a.data(), in.data(), *workspace_a, out_a.data(), state_a.data());
        narrow.Forward(b.data(), in.data(), *workspace_b, out_b.data(), state_b.data());
        EXPECT_EQ(Bits(out_a), Bits(out_b)) << Name(storage) << ' ' << Name(isa);
      }
    }
  }
}

// ---- statistics

TEST(NormalizeTest, SubtractsDividesAndClipsOnEveryIsa) {
  const auto network = MakeNetwork("normalize, out none", 1, 1, 19, 19).ValueOrThrow();
  std::vector<float> theta(network.parameter_count);
  for (size_t i = 0; i < 19; ++i) theta[i * 19 + i] = 1;  // the identity
  float* mean = theta.data() + network.layers[0].mean_offset;
  float* deviation = theta.data() + network.layers[0].spread_offset;
  const auto means = Random(1, 19), deviations = Random(2, 19), in = Random(3, 19);
  for (size_t i = 0; i < 19; ++i) mean[i] = means[i], deviation[i] = std::abs(deviations[i]);
  std::vector<float> want(19), input = in;
  input[3] = 1e9F, input[4] = -1e9F, deviation[5] = 0, input[6] = mean[6];
  for (size_t i = 0; i < 19; ++i) {
    const float x = (input[i] - mean[i]) / std::max(deviation[i], 0.1F);
    want[i] = std::clamp(x, -5.0F, 5.0F) + 0.0F;
  }
  EXPECT_EQ(want[3], 5);
  for (IsaLevel isa : AvailableIsaLevels()) {
    EXPECT_EQ(Bits(Forward(network, isa, theta, input)), Bits(want)) << Name(isa);
    input[7] = std::nanf("");
    EXPECT_TRUE(std::isnan(Forward(network, isa, theta, input)[7])) << Name(isa);
    input[7] = in[7];
  }
}

TEST(NormalizeTest, MeasuresItsInputs) {
  const auto network = MakeNetwork("normalize, dense 3 vbn tanh", 1, 1, 5, 2).ValueOrThrow();
  std::vector<std::vector<float>> batch;
  std::vector<const float*> reference;
  for (uint64_t o = 0; o < 30; ++o)
    reference.push_back(batch.emplace_back(Random(10 + o, 5, 0.2)).data());
  auto theta = Random(1, network.parameter_count);
  const PopulationKernel kernel(network);
  kernel.ComputeStatistics(reference, *kernel.MakeWorkspace(), theta);
  for (size_t i = 0; i < 5; ++i) {
    double sum = 0, squares = 0;
    for (const auto& x : batch) sum += x[i], squares += double{x[i]} * x[i];
    const double mean = sum / 30;
    EXPECT_NEAR(theta[network.layers[0].mean_offset + i], mean, 1e-6);
    EXPECT_NEAR(theta[network.layers[0].spread_offset + i], std::sqrt(squares / 30 - mean * mean),
                1e-5);
  }
}

// Means and variances by plain loops in float64, layer after layer, and what a layer computes with
// them.
TEST(VirtualBatchNormTest, StatisticsAndOutputsAreThoseOfPlainLoops) {
  const char* const lines[] = {
      "conv 5 3x3/2 same vbn relu, conv 17 2x2 vbn tanh, dense 7 vbn relu",
      "conv 5 3x3/2 same vbn_affine relu, conv 17 2x2 tanh, dense 7 vbn_affine relu, dense 3 tanh"};
  for (const char* line : lines) {
    const auto network = MakeNetwork(line, 11, 9, 3, 4).ValueOrThrow();
    auto theta = Random(5, network.parameter_count);
    for (size_t i = 0; i < theta.size(); ++i) theta[i] *= 0.4F;
    std::vector<std::vector<float>> batch;
    std::vector<const float*> reference;
    for (uint64_t o = 0; o < 13; ++o)
      reference.push_back(batch.emplace_back(Random(60 + o, network.input_size(), 0.3)).data());

    // naive: sums of a layer without its Norm, then the Norm
    auto expected = theta;
    std::vector<std::vector<float>> inputs = batch;
    for (const Layer& layer : network.layers) {
      Layer bare = layer;
      std::vector<std::vector<float>> sums;
      auto without = expected;
      if (layer.norm == Norm::kVbn)
        std::fill_n(without.begin() + static_cast<ptrdiff_t>(layer.bias_offset), layer.out, 0.0F);
      for (const auto& in : inputs) {
        auto& out = sums.emplace_back();
        for (int64_t y = 0; y < layer.out_height; ++y)
          for (int64_t x = 0; x < layer.out_width; ++x)
            for (int64_t c = 0; c < layer.out; ++c)
              out.push_back(Chain(bare, without.data(), in, y, x, c));
      }
      for (size_t c = 0; layer.norm != Norm::kNone && c < static_cast<size_t>(layer.out); ++c) {
        double sum = 0, squares = 0, n = 0;
        for (const auto& out : sums)
          for (size_t i = c; i < out.size(); i += static_cast<size_t>(layer.out))
            sum += out[i], ++n;
        const double mean = sum / n;
        for (const auto& out : sums)
          for (size_t i = c; i < out.size(); i += static_cast<size_t>(layer.out))
            squares += (out[i] - mean) * (out[i] - mean);
        const double variance = squares / n;
        expected[layer.mean_offset + c] = static_cast<float>(mean);
        expected[layer.spread_offset + c] = static_cast<float>(variance);
        for (auto& out : sums)
          for (size_t i = c; i < out.size(); i += static_cast<size_t>(layer.out)) {
            const double unit = (out[i] - mean) / std::sqrt(variance + 1e-3);
            out[i] = static_cast<float>(layer.norm == Norm::kVbn
                                            ? unit + expected[layer.bias_offset + c]
                                            : unit * expected[layer.scale_offset + c] +
                                                  expected[layer.shift_offset + c]);
          }
      }
      for (auto& out : sums)
        for (float& v : out)
          v = layer.activation == Activation::kRelu   ? std::max(0.0F, v)
              : layer.activation == Activation::kTanh ? std::tanh(v)
                                                      : v;
      inputs = sums;
    }

    std::vector<float> portable;
    for (IsaLevel isa : AvailableIsaLevels()) {
      const PopulationKernel kernel(network, isa);
      const auto workspace = kernel.MakeWorkspace();
      auto mine = theta;
      kernel.ComputeStatistics(reference, *workspace, mine);
      for (size_t i = 0; i < mine.size(); ++i) {
        if (i < network.evolved_count)
          EXPECT_EQ(mine[i], theta[i]) << i;
        else
          EXPECT_NEAR(mine[i], expected[i], 2e-5 * std::max(1.0F, std::abs(expected[i]))) << i;
      }
      if (portable.empty()) portable = mine;
      EXPECT_EQ(Bits(mine), Bits(portable)) << Name(isa);
      // computed again, after other work, they are the same
      auto again = theta;
      std::fill(again.begin() + static_cast<ptrdiff_t>(network.evolved_count), again.end(), 9.0F);
      kernel.ComputeStatistics(reference, *workspace, again);
      EXPECT_EQ(Bits(again), Bits(mine));
      for (size_t o = 0; o < batch.size(); ++o) {
        const auto out = Forward(network, isa, mine, batch[o]);
        for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], inputs[o][i], 5e-5);
      }
    }
  }
}

TEST(PopulationKernelTest, AThousandLayersGiveTheBitsOfTheScalarChains) {
  const auto network = MakeNetwork("1024 x dense 3 relu", 1, 1, 4, 2).ValueOrThrow();
  ASSERT_EQ(network.layers.size(), kLayersMax);
  auto theta = Random(1, network.parameter_count);
  const auto in = Random(2, 4);
  const auto expected = Bits(Reference(network, theta, in));
  for (IsaLevel isa : AvailableIsaLevels())
    EXPECT_EQ(Bits(Forward(network, isa, theta, in)), expected) << Name(isa);
}

TEST(PopulationKernelTest, NanReachesTheOutput) {
  for (const char* name : {"mlp-8-relu", "mlp-8-tanh", "linear"}) {
    const auto network = MakeNetwork(name, 1, 1, 3, 2).ValueOrThrow();
    const auto theta = Random(1, network.parameter_count);
    for (IsaLevel isa : AvailableIsaLevels()) {
      for (float y : Forward(network, isa, theta, {0.5f, std::nanf(""), 0.0f})) {
        EXPECT_TRUE(std::isnan(y)) << name << ' ' << Name(isa);
      }
    }
  }
}

// One workspace serves individuals in any order: nothing of the last one stays behind.
TEST(PopulationKernelTest, ResultDoesNotDependOnWhatRanBefore) {
  const auto network = MakeNetwork("Model", 84, 84, 4, 6).ValueOrThrow();
  const PopulationKernel kernel(network);
  constexpr size_t kMembers = 4;
  std::vector<AlignedFloats> packed;
  std::vector<std::vector<float>> inputs, alone;
  for (uint64_t m = 0; m < kMembers; ++m) {
    const auto theta = Random(m, network.parameter_count);
    packed.emplace_back(kernel.packed_size());
    kernel.Pack(theta, packed.back().span());
    inputs.push_back(Random(m + 50, network.input_size(), 0.25 * static_cast<double>(m)));
    alone.push_back(Forward(network, ActiveIsa(), theta, inputs.back()));
  }
  const auto workspace = kernel.MakeWorkspace();
  for (size_t m : {3, 0, 2, 1, 1, 3, 2, 0}) {
    std::vector<float> out(network.output_size());
    kernel.Forward(packed[m].data(), inputs[m].data(), *workspace, out.data());
    EXPECT_EQ(Bits(out), Bits(alone[m])) << m;
  }
}

TEST(PopulationKernelTest, ZeroInputsLeaveTheBiases) {
  const auto network = MakeNetwork("linear", 1, 1, 5, 3).ValueOrThrow();
  const auto theta = Random(3, network.parameter_count);
  const auto out = Forward(network, ActiveIsa(), theta, std::vector<float>(5, -0.0f));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(out[i], theta[15 + i]);
}

TEST(AlignedFloatsTest, IsAlignedAndZero) {
  for (size_t n : {size_t{1}, size_t{1000}, size_t{2'000'000}}) {
    AlignedFloats floats(n);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(floats.data()) % 64, 0u);
    EXPECT_EQ(floats.size(), n);
    for (float f : floats.span()) ASSERT_EQ(f, 0.0f);
  }
}

}  // namespace
}  // namespace samara::kernel_test
