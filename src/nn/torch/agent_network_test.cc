#include "nn/torch/agent_network.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "nn/agent_layout.h"

namespace samara {
namespace {

using torch::Tensor;

AgentNetworkImpl::Input RandomInput(const AgentNetworkConfig& c, int64_t time, int64_t batch) {
  const bool image = c.height > 1;
  const std::vector<int64_t> shape = {time, batch, c.height, c.width, c.channels};
  return {image ? torch::randint(0, 256, shape).to(torch::kUInt8) : torch::randn(shape),
          torch::randn({time, batch}),
          torch::randint(0, std::max<int64_t>(1, c.action_input), {time, batch}),
          torch::rand({time, batch}) < 0.2};
}

// Published counts: IMPALA, SEED RL, DQN.
TEST(AgentNetworkTest, HasThePublishedParameterCounts) {
  const std::pair<AgentNetworkConfig, int64_t> cases[] = {
      {{"impala_deep", 72, 96, 3, 9, {256}, true, 9}, 1'520'714},
      {{"impala_shallow", 72, 96, 3, 9, {256}, true, 9}, 1'123'130},
      {{"impala_deep", 84, 84, 4, 18, {256}, true, 18}, 1'638'883},
      {{"impala_deep", 84, 84, 4, 18, {0}, false, 0}, 1'094'115},
      {{"impala_deep", 84, 84, 4, 6, {0}, true, 0}, 1'091'038},
      {{"football", 72, 96, 16, 19, {0}, false, 0}, 396'868},
      {{"football", 90, 120, 16, 19, {0}, false, 0}, 544'324},
      {{"football", 108, 144, 16, 19, {0}, false, 0}, 667'204},
      {{"nature", 84, 84, 4, 18, {0}, false, 0}, 1'684'128 + 513 * 18 + 513},
      {{"mlp-64-64-relu", 1, 1, 17, 12, {0}, false, 0}, 6'157},
      // PPO's on HalfCheetah: a policy of means and six free deviations, and a value of its own
      {{.torso = "mlp-64-64-tanh",
        .height = 1,
        .width = 1,
        .channels = 17,
        .outputs = 12,
        .separate_value = true,
        .free_half = 0.0},
       5'708 + 5'377},
      // by hand: convolutions 3088 + 8224, dense 2240 x 256 + 256, heads 257 x 10
      {{"impala_shallow", 72, 96, 3, 9, {0}, false, 0}, 587'578},
      // by hand: dense 384 + 4160, LSTM 4 x 16 x (64 + 4 + 1 + 16 + 1), heads 17 x 5
      {{"mlp-64-64-relu", 1, 1, 5, 4, {16}, true, 4}, 10'133},
      // by hand: with a GRU of 3 x 16 x (64 + 4 + 1 + 16) + 4 x 16 in its place
      {{"mlp-64-64-relu", 1, 1, 5, 4, {16, AgentCore::Kind::kGru}, true, 4}, 8'773},
  };
  for (const auto& [config, count] : cases) {
    const auto network = AgentNetworkImpl::Make(config).ValueOrThrow();
    EXPECT_EQ(network->parameter_count(), count) << config.torso << ' ' << config.height;
    const auto input = RandomInput(config, 2, 3);
    const auto output = network->forward(input, torch::zeros({3, network->state_size()}));
    EXPECT_EQ(output.policy.sizes(), (std::vector<int64_t>{2, 3, config.outputs}));
    EXPECT_EQ(output.value.sizes(), (std::vector<int64_t>{2, 3}));
    EXPECT_TRUE(output.policy.isfinite().all().item<bool>());
  }
}

// Acting step by step and learning from the whole unroll see the same numbers.
void ExpectStepsOfAnUnroll(const AgentCore& core) {
  torch::manual_seed(4);
  const AgentNetworkConfig config{"mlp-32-tanh", 1, 1, 5, 4, core, true, 4};
  const auto network = AgentNetworkImpl::Make(config).ValueOrThrow();
  const auto input = RandomInput(config, 9, 3);
  const Tensor start = torch::randn({3, network->state_size()});
  const auto whole = network->forward(input, start);
  Tensor state = start;
  for (int64_t t = 0; t < 9; ++t) {
    const auto at = [t](const Tensor& x) { return x.slice(0, t, t + 1); };
    const auto one = network->forward(
        {at(input.observation), at(input.reward), at(input.action), at(input.first)}, state);
    EXPECT_TRUE(torch::allclose(one.policy[0], whole.policy[t], 1e-5, 1e-6));
    EXPECT_TRUE(torch::allclose(one.value[0], whole.value[t], 1e-5, 1e-6));
    state = one.state;
  }
  EXPECT_TRUE(torch::allclose(state, whole.state, 1e-5, 1e-6));
}

TEST(AgentNetworkTest, AnUnrollIsItsStepsOneByOne) {
  ExpectStepsOfAnUnroll({16});
  ExpectStepsOfAnUnroll({16, AgentCore::Kind::kGru});
}

// Without samara's own loops, as on a GPU: the same outputs and gradients but for rounding.
TEST(AgentNetworkTest, TorchsOperationsGiveWhatOwnLoopsGive) {
  std::vector<AgentNetworkConfig> configs = {{"mlp-16-tanh", 1, 1, 5, 4},
                                             {"normalize, dense 8 relu", 1, 1, 5, 4},
                                             {"dense 9 layer_norm tanh, dense 8 relu", 1, 1, 5, 4},
                                             {"nature", 84, 84, 4, 6}};
  configs[0].separate_value = true;
  configs[0].free_half = 0.5;
  for (AgentNetworkConfig config : configs) {
    torch::manual_seed(3);
    const auto own = AgentNetworkImpl::Make(config).ValueOrThrow();
    torch::manual_seed(3);
    config.native = false;
    const auto other = AgentNetworkImpl::Make(config).ValueOrThrow();
    for (const auto& network : {own, other})
      if (const auto statistics = network->observations(); statistics.mean.defined()) {
        const torch::NoGradGuard no_gradient;
        Tensor(statistics.mean).copy_(torch::arange(5) / 3.0);
        Tensor(statistics.deviation).copy_(torch::arange(5) / 2.0);
      }
    const auto input = RandomInput(config, 2, 3);
    const Tensor state = torch::zeros({3, 0});
    const auto a = own->forward(input, state), b = other->forward(input, state);
    EXPECT_TRUE(torch::allclose(a.policy, b.policy, 1e-4, 1e-5)) << config.torso;
    EXPECT_TRUE(torch::allclose(a.value, b.value, 1e-4, 1e-5)) << config.torso;
    (a.policy.sum() + a.value.square().sum()).backward();
    (b.policy.sum() + b.value.square().sum()).backward();
    for (const auto& item : own->named_parameters()) {
      if (!item.value().requires_grad()) continue;
      EXPECT_TRUE(torch::allclose(item.value().grad(), other->named_parameters()[item.key()].grad(),
                                  1e-3, 1e-4))
          << config.torso << ' ' << item.key();
    }
  }
}

TEST(AgentNetworkTest, KernelsStartAsTheirInitializerSays) {
  torch::manual_seed(6);
  AgentNetworkConfig config{
      .torso = "nature", .height = 84, .width = 84, .channels = 4, .outputs = 6};
  const auto rows = [](const auto& network, const std::string& name) {
    return network->named_parameters()[name].detach().flatten(1);
  };
  const auto glorot = AgentNetworkImpl::Make(config).ValueOrThrow();
  // uniform within sqrt(6 / (fan in + fan out)), which 8,192 draws come close to
  const double bound = std::sqrt(6.0 / (4 * 64 + 32 * 64));
  EXPECT_LE(rows(glorot, "conv1_weight").abs().max().item<double>(), bound);
  EXPECT_GT(rows(glorot, "conv1_weight").abs().max().item<double>(), 0.99 * bound);
  config.initializer = Initializer::kOrthogonal;
  const auto orthogonal = AgentNetworkImpl::Make(config).ValueOrThrow();
  for (const auto& [name, gain] : std::map<std::string, double>{{"conv1_weight", std::sqrt(2.0)},
                                                                {"conv3_weight", std::sqrt(2.0)},
                                                                {"fc_weight", std::sqrt(2.0)},
                                                                {"policy_weight", 0.01},
                                                                {"value_weight", 1.0}}) {
    const Tensor w = rows(orthogonal, name);
    EXPECT_TRUE(torch::allclose(w.matmul(w.t()), gain * gain * torch::eye(w.size(0)), 1e-4,
                                1e-5 * gain * gain))
        << name;
  }
  // Keras' formula: the moments and bounds of many draws, and a normal distribution's share
  config.initializer = Initializer::kLecunNormal;
  const auto lecun = AgentNetworkImpl::Make(config).ValueOrThrow();
  for (const auto& [name, fan_in] : std::map<std::string, double>{
           {"conv2_weight", 32 * 16}, {"fc_weight", 3136}, {"policy_weight", 512}}) {
    const Tensor w = rows(lecun, name).to(torch::kFloat64);
    const double n = static_cast<double>(w.numel()), deviation = std::sqrt(1 / fan_in);
    const double uncut = deviation / 0.87962566103423978;
    EXPECT_NEAR(w.mean().item<double>(), 0, 4 * deviation / std::sqrt(n)) << name;
    EXPECT_NEAR(w.std().item<double>() / deviation, 1, 4 / std::sqrt(2 * n)) << name;
    EXPECT_LE(w.abs().max().item<double>(), 2 * uncut * (1 + 1e-6)) << name;
    EXPECT_GT(w.abs().max().item<double>(), (2 - 100 / n) * uncut) << name;
    EXPECT_NEAR((w.abs() < uncut).to(torch::kFloat64).mean().item<double>(), 0.682689 / 0.954500,
                4 / std::sqrt(4 * n))
        << name;
  }
}

// Mixed precision comes as close as eight bits of mantissa allow (what differs most are gradients
// of kernels behind rectifiers that open and close), with the same parameters;
// gradients are float32, and frozen networks have the bits of others.
TEST(AgentNetworkTest, ProductsOfBfloat16ComeClose) {
  for (const char* torso : {"nature", "impala_deep", "mlp-64-64-tanh"}) {
    AgentNetworkConfig config{
        .torso = torso, .height = 84, .width = 84, .channels = 4, .outputs = 6, .core = {8}};
    const auto made = [&](bool bfloat16) {
      torch::manual_seed(6);
      config.bfloat16 = bfloat16;
      return AgentNetworkImpl::Make(config).ValueOrThrow();
    };
    const auto exact = made(false), mixed = made(true);
    const auto input = RandomInput(config, 2, 3);
    const Tensor state = torch::randn({3, 16});
    const auto gradients = [&](const AgentNetwork& network) {
      const auto out = network->forward(input, state);
      (out.policy.square().sum() + out.value.sum()).backward();
      std::vector<Tensor> all = {out.policy.detach(), out.value.detach(), out.state.detach()};
      for (const Tensor& p : network->parameters()) all.push_back(p.grad());
      return all;
    };
    const auto want = gradients(exact), got = gradients(mixed);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(got[i].scalar_type(), torch::kFloat32);
      const double off = (got[i] - want[i]).norm().item<double>();
      EXPECT_LT(off, 0.2 * want[i].norm().item<double>() + 1e-6) << torso << " " << i;
    }
    EXPECT_FALSE(got[0].equal(want[0]));
    const torch::NoGradGuard none;
    for (Tensor& p : mixed->parameters()) p.set_requires_grad(false);
    mixed->Freeze();
    EXPECT_TRUE(mixed->forward(input, state).policy.equal(got[0]));
    mixed->parameters()[0].mul_(2);
    EXPECT_TRUE(mixed->forward(input, state).policy.equal(got[0]));
    mixed->Freeze();
    EXPECT_FALSE(mixed->forward(input, state).policy.equal(got[0]));
  }
}

// Nothing of the last episode passes through its end.
TEST(AgentNetworkTest, TheStateIsZeroedWhereAnEpisodeBegins) {
  torch::manual_seed(5);
  const AgentNetworkConfig config{"mlp-32-tanh", 1, 1, 5, 4, {16}, false, 0};
  const auto network = AgentNetworkImpl::Make(config).ValueOrThrow();
  auto input = RandomInput(config, 1, 2);
  input.first.fill_(true);
  const auto a = network->forward(input, torch::randn({2, 32}));
  const auto b = network->forward(input, torch::zeros({2, 32}));
  EXPECT_TRUE(torch::equal(a.policy, b.policy));
  input.first.fill_(false);
  EXPECT_FALSE(torch::equal(network->forward(input, torch::randn({2, 32})).policy, b.policy));
}

// libtorch's cell with both of its biases, ours in one of them.
TEST(AgentNetworkTest, TheLstmIsTheUsualOne) {
  torch::manual_seed(6);
  const AgentNetworkConfig config{"mlp-8-tanh", 1, 1, 5, 4, {7}, false, 0};
  const auto network = AgentNetworkImpl::Make(config).ValueOrThrow();
  const auto p = network->named_parameters();
  EXPECT_EQ(p["lstm_bias"].slice(0, 7, 14).min().item<float>(), 1);  // forget gate
  torch::nn::LSTMCell cell(8, 7);
  {
    const torch::NoGradGuard no_gradient;
    cell->weight_ih.copy_(p["lstm_input"]);
    cell->weight_hh.copy_(p["lstm_recurrent"]);
    cell->bias_ih.copy_(p["lstm_bias"]);
    cell->bias_hh.zero_();
  }
  const auto input = RandomInput(config, 1, 3);
  const Tensor state = torch::randn({3, 14});
  const Tensor features =
      torch::tanh(torch::linear(input.observation[0].flatten(1), p["fc1_weight"], p["fc1_bias"]));
  const Tensor kept = state * input.first[0].logical_not().unsqueeze(1);
  const auto [h, c] =
      cell->forward(features, std::tuple(kept.slice(1, 0, 7), kept.slice(1, 7, 14)));
  EXPECT_TRUE(
      torch::allclose(network->forward(input, state).state, torch::cat({h, c}, 1), 1e-5, 1e-6));
}

NamedTensors Named(const torch::OrderedDict<std::string, Tensor>& parameters,
                   const std::string& prefix = "") {
  NamedTensors named;
  for (const auto& p : parameters) {
    const Tensor flat = p.value().detach().contiguous();
    named[prefix + p.key()] = samara::Tensor::OfFloats(
        flat.sizes().vec(), {flat.data_ptr<float>(), static_cast<size_t>(flat.numel())});
  }
  return named;
}

void Load(const NamedTensors& named, const torch::OrderedDict<std::string, Tensor>& parameters,
          const std::string& prefix = "") {
  const torch::NoGradGuard no_gradient;
  for (const auto& p : parameters)
    Tensor(p.value()).copy_(
        torch::tensor(named.at(prefix + p.key()).Floats()).reshape(p.value().sizes()));
}

// libtorch's cell, whose biases are all drawn: in the layout of a learner's network it gives the
// same states and gradients, step for step and where episodes begin, and it comes back from there.
TEST(AgentNetworkTest, TheGruIsTheUsualOne) {
  torch::manual_seed(6);
  constexpr int64_t kTime = 9, kBatch = 3, kUnits = 7;
  const AgentNetworkConfig config{"mlp-8-tanh", 1, 1, 5, 4, {kUnits, AgentCore::Kind::kGru},
                                  false,        0};
  const auto network = AgentNetworkImpl::Make(config).ValueOrThrow();
  torch::nn::GRUCell cell(8, kUnits), back(8, kUnits);
  NamedTensors own = Named(network->named_parameters());
  for (auto& [name, tensor] :
       AgentFromTorch(Named(cell->named_parameters(), "gru.")).ValueOrThrow())
    own.at(name) = tensor;
  Load(own, network->named_parameters());
  Load(AgentToTorch(own).ValueOrThrow(), back->named_parameters(), "gru.");

  auto input = RandomInput(config, kTime, kBatch);
  input.first[4][1] = true, input.first[5][1] = false;
  const Tensor start = torch::randn({kBatch, kUnits}),
               weight = torch::randn({kTime, kBatch, kUnits});
  const auto p = network->named_parameters();
  const auto states = [&](torch::nn::GRUCell& with) {
    Tensor state = start;
    std::vector<Tensor> all;
    for (int64_t t = 0; t < kTime; ++t) {
      const Tensor features = torch::tanh(
          torch::linear(input.observation[t].flatten(1), p["fc1_weight"], p["fc1_bias"]));
      state = with->forward(features, state * input.first[t].logical_not().unsqueeze(1));
      all.push_back(state);
    }
    return torch::stack(all);
  };
  const auto out = network->forward(input, start);
  ASSERT_EQ(out.state.sizes(), (std::vector<int64_t>{kBatch, kUnits}));
  const Tensor expected = states(cell);
  EXPECT_TRUE(torch::allclose(out.states, expected, 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(states(back), expected, 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(
      out.policy, torch::linear(expected, p["policy_weight"], p["policy_bias"]), 1e-5, 1e-6));

  const auto gradient = [&](const Tensor& of, const std::vector<Tensor>& by) {
    return torch::autograd::grad({(of * weight).sum()}, by);
  };
  const auto got =
      gradient(out.states, {p["gru_input"], p["gru_recurrent"], p["fc1_weight"], p["gru_bias"]});
  const auto want = gradient(
      expected, {cell->weight_ih, cell->weight_hh, p["fc1_weight"], cell->bias_ih, cell->bias_hh});
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(torch::allclose(got[i], want[i], 1e-4, 1e-5)) << i;
  EXPECT_TRUE(
      torch::allclose(got[3], torch::cat({want[3], want[4].slice(0, 2 * kUnits)}), 1e-4, 1e-5));
}

// An exported network is PyTorch's: channels first, flattened as nn.Flatten does it.
TEST(AgentNetworkTest, ExportedTensorsComputeTheSameInTorchsLayout) {
  torch::manual_seed(7);
  for (const std::string torso : {"nature", "impala_shallow"}) {
    const AgentNetworkConfig config{torso, 52, 44, 3, 6, {0}, false, 0};
    const auto network = AgentNetworkImpl::Make(config).ValueOrThrow();
    const NamedTensors exported = AgentToTorch(Named(network->named_parameters())).ValueOrThrow();
    const auto get = [&](const std::string& name) {
      return torch::tensor(exported.at(name).Floats()).reshape(exported.at(name).shape);
    };
    const auto input = RandomInput(config, 1, 2);
    Tensor x = input.observation[0].to(torch::kFloat32).permute({0, 3, 1, 2}) / 255;
    for (const auto& [name, stride] :
         std::map<std::string, int>{{"conv1", 4}, {"conv2", 2}, {"conv3", 1}})
      if (exported.contains(name + ".weight"))
        x = torch::conv2d(x, get(name + ".weight"), get(name + ".bias"), stride).relu();
    x = torch::linear(x.flatten(1), get("fc.weight"), get("fc.bias")).relu();
    const auto out = network->forward(input, torch::zeros({2, 0}));
    EXPECT_TRUE(torch::allclose(torch::linear(x, get("policy.weight"), get("policy.bias")),
                                out.policy[0], 1e-4, 1e-5));
    EXPECT_TRUE(torch::allclose(torch::linear(x, get("value.weight"), get("value.bias")).squeeze(1),
                                out.value[0], 1e-4, 1e-5));
  }
}

TEST(AgentNetworkTest, BadInputIsNamed) {
  EXPECT_EQ(AgentNetworkImpl::Make({.torso = "impala"}).status().code(), Code::kConfig);
  EXPECT_EQ(AgentNetworkImpl::Make({.torso = "linear", .height = 1, .width = 1}).status().code(),
            Code::kConfig);
  EXPECT_EQ(AgentNetworkImpl::Make({.torso = "nature", .height = 20}).status().code(),
            Code::kConfig);
}

// The same parameters, by name and bits, as by the network's name.
TEST(AgentNetworkTest, ALineOfLayersIsTheNetworkThatItDescribes) {
  const std::pair<std::string, std::string> cases[] = {
      {"nature", "conv 32 8x8/4 relu, conv 64 4x4/2 relu, conv 64 3x3 relu, dense 512 relu"},
      {"impala_deep", "residual 16, residual 32, residual 32, dense 256 relu"},
      {"mlp-64-64-tanh", "dense 64 tanh, dense 64 tanh"}};
  for (const auto& [name, line] : cases) {
    AgentNetworkConfig config{name, 44, 52, 3, 6, {8}, true, 6};
    torch::manual_seed(5);
    const auto named = AgentNetworkImpl::Make(config).ValueOrThrow();
    config.torso = line;
    torch::manual_seed(5);
    const auto lined = AgentNetworkImpl::Make(config).ValueOrThrow();
    const auto a = named->named_parameters(), b = lined->named_parameters();
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].key(), b[i].key());
      EXPECT_TRUE(torch::equal(a[i].value(), b[i].value())) << a[i].key();
    }
    const auto input = RandomInput(config, 2, 3);
    const Tensor state = torch::randn({3, 16});
    EXPECT_TRUE(
        torch::equal(named->forward(input, state).policy, lined->forward(input, state).policy));
  }
}

// Activations of layers differ, as PyTorch's own modules compute them.
TEST(AgentNetworkTest, EachLayerHasItsOwnPaddingAndActivation) {
  torch::manual_seed(7);
  const AgentNetworkConfig config{
      "conv 4 3x3/2 same tanh, conv 5 3x3 none, dense 7 relu, dense 6 none",
      11,
      12,
      3,
      6,
      {},
      false,
      0};
  const auto network = AgentNetworkImpl::Make(config).ValueOrThrow();
  const auto p = network->named_parameters();
  const auto input = RandomInput(config, 1, 2);
  namespace F = torch::nn::functional;
  Tensor x = input.observation[0].to(torch::kFloat32).div(255).permute({0, 3, 1, 2});
  // SAME at stride 2: 11 rows need 1 zero on both sides, 12 columns 1 after
  x = torch::conv2d(F::pad(x, F::PadFuncOptions({0, 1, 1, 1})), p["conv1_weight"], p["conv1_bias"],
                    2);
  x = torch::conv2d(x.tanh(), p["conv2_weight"], p["conv2_bias"]);
  x = x.permute({0, 2, 3, 1}).flatten(1);
  x = torch::linear(x, p["fc1_weight"], p["fc1_bias"]).relu();
  x = torch::linear(x, p["fc2_weight"], p["fc2_bias"]);
  const Tensor policy = torch::linear(x, p["policy_weight"], p["policy_bias"]);
  const auto output = network->forward(input, torch::zeros({2, 0}));
  EXPECT_TRUE(torch::allclose(output.policy[0], policy, 1e-5, 1e-6));
}

// Observations are normalized as evolution's networks do it (nn/network.h), here by hand.
TEST(AgentNetworkTest, ANormalizeLayerUsesItsStatistics) {
  torch::manual_seed(6);
  AgentNetworkConfig config{"normalize, dense 8 tanh", 1, 1, 3, 2};
  const auto network = AgentNetworkImpl::Make(config).ValueOrThrow();
  config.torso = "dense 8 tanh";
  const auto plain = AgentNetworkImpl::Make(config).ValueOrThrow();
  const torch::NoGradGuard no_gradient;
  for (auto& item : plain->named_parameters())
    item.value().copy_(network->named_parameters()[item.key()]);
  EXPECT_EQ(network->parameter_count(), plain->parameter_count()) << "statistics do not count";
  network->observations().mean.copy_(torch::tensor({1.0F, -2.0F, 0.0F}));
  network->observations().deviation.copy_(torch::tensor({2.0F, 0.5F, 0.01F}));
  auto input = RandomInput(config, 2, 3);
  const Tensor x = input.observation.clone();
  const auto output = network->forward(input, torch::zeros({3, 0}));
  const auto z = [&](int64_t i, double mean, double deviation) {
    return ((x.select(-1, i) - mean) / deviation).clamp(-5, 5);
  };
  input.observation = torch::stack({z(0, 1, 2), z(1, -2, 0.5), z(2, 0, 0.1)}, -1);
  const auto expected = plain->forward(input, torch::zeros({3, 0}));
  EXPECT_TRUE(torch::allclose(output.policy, expected.policy, 1e-4, 1e-5));
  EXPECT_TRUE(torch::allclose(output.value, expected.value, 1e-4, 1e-5));
}

// Bytes of an image become value / 255 and are normalized then, by samara's loop and by torch's
// operations.
TEST(AgentNetworkTest, ImagesAreNormalizedNumberByNumber) {
  torch::manual_seed(7);
  for (const bool native : {true, false}) {
    AgentNetworkConfig config{"normalize, conv 4 3x3/2 relu, dense 8 tanh", 9, 7, 2, 3};
    config.native = native;
    const auto network = AgentNetworkImpl::Make(config).ValueOrThrow();
    config.torso = "conv 4 3x3/2 relu, dense 8 tanh";
    const auto plain = AgentNetworkImpl::Make(config).ValueOrThrow();
    const torch::NoGradGuard no_gradient;
    for (auto& item : plain->named_parameters())
      item.value().copy_(network->named_parameters()[item.key()]);
    const auto [mean, deviation] = network->observations();
    ASSERT_EQ(mean.sizes(), (std::vector<int64_t>{9 * 7 * 2}));
    mean.uniform_(0, 1), deviation.uniform_(0, 0.3);
    auto input = RandomInput(config, 2, 3);
    const auto output = network->forward(input, torch::zeros({3, 0}));
    const std::vector<int64_t> shape = {9, 7, 2};
    input.observation = ((input.observation.to(torch::kFloat32) / 255 - mean.view(shape)) /
                         deviation.view(shape).clamp_min(0.1))
                            .clamp(-5, 5);
    const auto expected = plain->forward(input, torch::zeros({3, 0}));
    EXPECT_TRUE(torch::allclose(output.policy, expected.policy, 1e-4, 1e-5));
    EXPECT_TRUE(torch::allclose(output.value, expected.value, 1e-4, 1e-5));
  }
}

// PopArt: other statistics change no value, and a gradient of the value is in its deviations.
TEST(AgentNetworkTest, NewStatisticsOfValuesChangeNoValue) {
  torch::manual_seed(6);
  AgentNetworkConfig config{"dense 8 tanh", 1, 1, 3, 2};
  config.normalize_value = true;
  const auto network = AgentNetworkImpl::Make(config).ValueOrThrow();
  const auto input = RandomInput(config, 4, 3);
  const auto value = [&] { return network->forward(input, torch::zeros({3, 0})).value; };
  const Tensor before = value();
  for (const auto& [mean, deviation] : {std::pair{50.0, 20.0}, {-3.0, 0.1}, {0.0, 1.0}}) {
    network->SetValueStatistics(mean, deviation);
    EXPECT_TRUE(torch::allclose(value(), before, 1e-4, 1e-4)) << mean;
    const Tensor bias = network->named_parameters()["value_bias"];
    EXPECT_NEAR(torch::autograd::grad({value().mean()}, {bias})[0].item<double>(), deviation, 1e-5);
  }
}

TEST(AgentNetworkTest, ASeparateValueSharesNoParameter) {
  AgentNetworkConfig config{"mlp-64-64-tanh", 1, 1, 17, 12};
  config.separate_value = true;
  config.free_half = 0.5;
  const auto network = AgentNetworkImpl::Make(config).ValueOrThrow();
  // 17-64-64-6 and 6 deviations, 17-64-64-1: common implementations' for HalfCheetah
  EXPECT_EQ(network->parameter_count(), 5708 + 5377);
  const auto input = RandomInput(config, 2, 3);
  const auto output = network->forward(input, torch::zeros({3, 0}));
  EXPECT_TRUE(output.policy.slice(-1, 6).eq(0.5).all().item<bool>());
  const auto parameters = network->parameters();
  const auto of = [&](const Tensor& x) {
    std::vector<bool> reached;
    for (const Tensor& g :
         torch::autograd::grad({x.sum()}, parameters, {}, true, false, /*allow_unused=*/true))
      reached.push_back(g.defined());
    return reached;
  };
  const auto policy = of(output.policy), value = of(output.value);
  for (size_t i = 0; i < parameters.size(); ++i) EXPECT_NE(policy[i], value[i]) << i;
  config.core = {4};
  EXPECT_EQ(AgentNetworkImpl::Make(config).status().code(), Code::kConfig);
}

// Free outputs are those of every network, whether it is one operation or torch's.
TEST(AgentNetworkTest, AFreeHalfIsThereWithACoreToo) {
  for (const int64_t lstm : {0, 8}) {
    const auto network = AgentNetworkImpl::Make({.torso = "mlp-4-tanh",
                                                 .height = 1,
                                                 .width = 1,
                                                 .channels = 3,
                                                 .outputs = 4,
                                                 .core = {lstm},
                                                 .free_half = 0.25})
                             .ValueOrThrow();
    const auto out =
        network->forward({torch::randn({2, 5, 1, 1, 3}), torch::zeros({2, 5}),
                          torch::zeros({2, 5}, torch::kInt64), torch::zeros({2, 5}, torch::kBool)},
                         torch::zeros({5, 2 * lstm}));
    ASSERT_EQ(out.policy.sizes(), (std::vector<int64_t>{2, 5, 4})) << lstm;
    EXPECT_TRUE((out.policy.slice(2, 2) == 0.25).all().item<bool>()) << lstm;
  }
}

}  // namespace
}  // namespace samara
