#include "nn/torch/network.h"

#include <gtest/gtest.h>

#include "nn/kernel.h"
#include "nn/torch_layout.h"

namespace samara {
namespace {

NetworkDescription Named(const std::string& name) {
  const bool image = name == "LargeModel" || name == "Model" || name == "Nature";
  return MakeNetwork(name, image ? 84 : 1, image ? 84 : 1, image ? 4 : 376, 17).ValueOrThrow();
}

// SAME padding that is odd, maps that are not square, odd channels, tanh after a convolution.
NetworkDescription Odd() {
  NetworkDescription network;
  network.name = "odd";
  network.height = 13;
  network.width = 18;
  network.channels = 3;
  Layer conv1, conv2, fc, out;
  conv1.kind = conv2.kind = Layer::Kind::kConv;
  conv1.name = "conv1", conv2.name = "conv2", fc.name = "fc", out.name = "out";
  conv1.out = 5, conv1.kernel = 4, conv1.stride = 3, conv1.padding = Padding::kSame;
  conv2.out = 7, conv2.kernel = 2, conv2.stride = 1, conv2.padding = Padding::kSame;
  fc.out = 9, out.out = 4;
  conv1.activation = fc.activation = Activation::kTanh;
  conv2.activation = Activation::kRelu;
  network.layers = {conv1, conv2, fc, out};
  ThrowIfError(Finish(network));
  return network;
}

// Weights of the usual scale c / sqrt(fan_in), so that activations keep theirs.
std::vector<float> RandomParameters(const NetworkDescription& network) {
  std::vector<float> theta(network.parameter_count);
  for (const TensorSlice& slice : Tensors(network)) {
    const double scale = slice.bias ? 0.1 : 1 / std::sqrt(static_cast<double>(slice.fan_in));
    const std::vector<int64_t> count = {static_cast<int64_t>(slice.count)};
    const torch::Tensor values =
        slice.statistic ? torch::rand(count) + 0.3 : torch::randn(count) * scale;
    std::copy_n(values.const_data_ptr<float>(), slice.count, theta.begin() + slice.offset);
  }
  return theta;
}

torch::Tensor RandomObservations(const NetworkDescription& network, int64_t batch) {
  const auto x = torch::rand({batch, network.height, network.width, network.channels});
  return torch::relu(x - 0.3);  // some exact zeros
}

// The population kernel's outputs, [batch][outputs].
torch::Tensor OfTheKernel(const NetworkDescription& network, const std::vector<float>& theta,
                          const torch::Tensor& observations) {
  const PopulationKernel kernel(network);
  AlignedFloats packed(kernel.packed_size());
  kernel.Pack(theta, packed.span());
  const auto workspace = kernel.MakeWorkspace();
  const torch::Tensor outputs = torch::empty({observations.size(0), network.layers.back().out});
  for (int64_t row = 0; row < observations.size(0); ++row)
    kernel.Forward(packed.data(), observations[row].const_data_ptr<float>(), *workspace,
                   outputs[row].mutable_data_ptr<float>());
  return outputs;
}

class TorchNetworkTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { torch::manual_seed(1); }
  NetworkDescription network() const { return GetParam() == "odd" ? Odd() : Named(GetParam()); }
};

// Two executors that round differently: relative to the largest output, float32 sums of at most
// 7,744 products agree to 1e-5.
TEST_P(TorchNetworkTest, AgreesWithThePopulationKernel) {
  const NetworkDescription network = this->network();
  const std::vector<float> theta = RandomParameters(network);
  constexpr int64_t kBatch = 6;
  const torch::Tensor observations = RandomObservations(network, kBatch);

  TorchNetwork module(network);
  module->Load(theta);
  const torch::NoGradGuard no_grad;
  const torch::Tensor expected = module->forward(observations);
  ASSERT_EQ(expected.sizes(), (std::vector<int64_t>{kBatch, network.layers.back().out}));

  const torch::Tensor actual = OfTheKernel(network, theta, observations);
  const float scale = expected.abs().max().item<float>();
  ASSERT_GT(scale, 0.01f);
  EXPECT_LT((actual - expected).abs().max().item<float>(), 1e-5f * scale);
}

TEST_P(TorchNetworkTest, StoresWhatItLoaded) {
  const NetworkDescription network = this->network();
  const std::vector<float> theta = RandomParameters(network);
  TorchNetwork module(network);
  module->Load(theta);
  EXPECT_EQ(module->Store(), theta);
  const auto tensors = ToTorchLayout(network, theta);
  const auto parameters = module->named_parameters();
  ASSERT_EQ(parameters.size(), tensors.size());
  for (const TorchTensor& tensor : tensors) {
    EXPECT_EQ(parameters[tensor.name].sizes(), tensor.shape) << tensor.name;
  }
}

// The gradient of a random projection, against central differences along a random direction.
TEST_P(TorchNetworkTest, GradientMatchesFiniteDifferences) {
  TorchNetwork module(network());
  module->Load(RandomParameters(network()));
  module->to(torch::kFloat64);
  const torch::Tensor observations = RandomObservations(network(), 2).to(torch::kFloat64);
  const torch::Tensor projection = torch::randn({2, network().layers.back().out}, torch::kFloat64);
  const auto loss = [&] { return (module->forward(observations) * projection).sum(); };
  loss().backward();

  double expected = 0;
  std::vector<torch::Tensor> directions;
  for (const auto& p : module->parameters()) {
    ASSERT_TRUE(p.grad().defined());
    directions.push_back(torch::randn_like(p));
    expected += (p.grad() * directions.back()).sum().item<double>();
  }
  const torch::NoGradGuard no_grad;
  const auto shifted = [&](double step) {
    size_t i = 0;
    for (auto& p : module->parameters()) p.add_(directions[i++], step);
    return loss().item<double>();
  };
  constexpr double kStep = 1e-7;
  const double above = shifted(kStep), below = shifted(-2 * kStep);
  EXPECT_NEAR((above - below) / (2 * kStep), expected, 1e-4 * std::abs(expected) + 1e-4);
}

// Compares what evolution has in addition to plain layers: each activation, both virtual batch
// norms, statistics of observations. The kernel multiplies weights with the norm's scale
// beforehand.
TEST(TorchNetworkOfALineTest, AgreesWithThePopulationKernel) {
  torch::manual_seed(2);
  for (const std::string line :
       {"normalize, dense 9 elu, dense 8 selu, dense 8 silu, dense 9 gelu, dense 7 lrelu, "
        "dense 6 lrelu0.2, dense 5 sigmoid, out tanh",
        "conv 5 3x3/2 same vbn relu, conv 4 2x2 vbn_affine tanh, dense 6 vbn none",
        "conv 5 3x3 none, dense 12 vbn_affine relu", "normalize, out no_bias none"}) {
    const bool image = line.starts_with("conv");
    const auto network =
        MakeNetwork(line, image ? 9 : 1, image ? 8 : 1, image ? 3 : 11, 4).ValueOrThrow();
    const std::vector<float> theta = RandomParameters(network);
    TorchNetwork module(network);
    module->Load(theta);
    EXPECT_EQ(module->Store(), theta) << line;
    const torch::NoGradGuard no_grad;
    const torch::Tensor observations =
        torch::randn({6, network.height, network.width, network.channels});
    const torch::Tensor expected = module->forward(observations);
    const torch::Tensor actual = OfTheKernel(network, theta, observations);
    EXPECT_TRUE(torch::allclose(actual, expected, 1e-5, 1e-5)) << line << '\n' << actual - expected;
  }
}

// Cells of PyTorch, over an episode of nine observations.
TEST(TorchNetworkOfALineTest, RecurrentLayersAgreeWithThePopulationKernel) {
  torch::manual_seed(3);
  for (const std::string line :
       {"rnn 7 tanh, rnn 5 relu", "dense 6 tanh, lstm 5", "gru 6, lstm 4, out tanh"}) {
    const auto network = MakeNetwork(line, 1, 1, 3, 2).ValueOrThrow();
    const std::vector<float> theta = RandomParameters(network);
    TorchNetwork module(network);
    module->Load(theta);
    EXPECT_EQ(module->Store(), theta) << line;
    const torch::NoGradGuard no_grad;
    const PopulationKernel kernel(network);
    AlignedFloats packed(kernel.packed_size()), state(kernel.state_size());
    kernel.Pack(theta, packed.span());
    const auto workspace = kernel.MakeWorkspace();
    TorchNetworkImpl::State torch_state;
    for (int t = 0; t < 9; ++t) {
      const torch::Tensor observation = torch::randn({1, 1, 1, 3});
      const torch::Tensor expected = module->forward(observation, &torch_state);
      torch::Tensor actual = torch::empty_like(expected);
      kernel.Forward(packed.data(), observation.const_data_ptr<float>(), *workspace,
                     actual.mutable_data_ptr<float>(), state.data());
      EXPECT_TRUE(torch::allclose(actual, expected, 1e-5, 1e-5)) << line << ' ' << t;
      // without a state every observation is an episode's first
      EXPECT_EQ(torch::equal(module->forward(observation), expected), t == 0) << line << ' ' << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, TorchNetworkTest,
                         testing::Values("LargeModel", "Model", "Nature", "linear",
                                         "mlp-256-256-tanh", "mlp-16-16-relu", "odd"),
                         [](const auto& network_info) {
                           std::string name = network_info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace samara
