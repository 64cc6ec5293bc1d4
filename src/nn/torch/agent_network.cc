#include "nn/torch/agent_network.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "core/check.h"
#include "nn/layer_line.h"
#include "nn/torch/network.h"

namespace samara {
namespace {

using torch::Tensor;

// Zeros (or `value`) before and after so that windows of `kernel` at `stride` give ceil(n /
// stride).
Tensor PadSame(const Tensor& x, int64_t kernel, int64_t stride, double value) {
  const auto padding = [&](int64_t n) {
    const int64_t total =
        std::max<int64_t>(0, ((n + stride - 1) / stride - 1) * stride + kernel - n);
    return std::pair(total / 2, total - total / 2);
  };
  const auto [top, bottom] = padding(x.size(-2));
  const auto [left, right] = padding(x.size(-1));
  return torch::constant_pad_nd(x, {left, right, top, bottom}, value);
}

Tensor PoolSame(const Tensor& x) {
  return torch::max_pool2d(PadSame(x, 3, 2, -std::numeric_limits<double>::infinity()), 3, 2);
}

// Draws of deviation `deviation`, from a normal distribution cut at two of its own deviations.
void TruncatedNormal(Tensor& x, double deviation) {
  constexpr double kCut = 2, kDeviationWhenCut = 0.87962566103423978;
  const double uncut = deviation / kDeviationWhenCut;
  const double most = std::erf(kCut / std::numbers::sqrt2);
  x.uniform_(-most, most).erfinv_().mul_(uncut * std::numbers::sqrt2);
  x.clamp_(-kCut * uncut, kCut * uncut);
}

bool IsImage(const AgentNetworkConfig& config) { return config.height > 1 || config.width > 1; }

struct TorsoDescription {
  bool normalizes = false;
  NetworkDescription behind;  // no layers where a module takes their place
};
Result<TorsoDescription> TorsoOf(const AgentNetworkConfig& config) {
  ASSIGN_OR_RETURN(const auto behind, BehindNormalize(config.torso));
  TorsoDescription torso{.normalizes = behind.has_value(), .behind = {}};
  if (config.module) return torso;
  auto made =
      MakeTorso(behind.value_or(config.torso), config.height, config.width, config.channels);
  if (!made.ok()) return behind ? made.status().Annotate("network " + config.torso) : made.status();
  torso.behind = *std::move(made);
  return torso;
}

}  // namespace

std::vector<int64_t> AgentNetworkConfig::module_input() const {
  return IsImage(*this) ? std::vector{channels, height, width} : std::vector{channels};
}

Result<AgentNetwork> AgentNetworkImpl::Make(const AgentNetworkConfig& config) {
  RETURN_IF_ERROR(TorsoOf(config).status());
  if (config.separate_value && (config.height > 1 || config.width > 1 || config.core))
    return Status(Code::kConfig,
                  "network.value=separate: expected observations that are vectors, and "
                  "network.lstm=0 and network.gru=0");
  return std::make_shared<AgentNetworkImpl>(config);
}

AgentNetworkImpl::AgentNetworkImpl(const AgentNetworkConfig& config)
    : config_(config),
      native_(config.native && config.device.is_cpu()),
      height_(config.height),
      width_(config.width),
      channels_(config.channels) {
  const auto [normalizes, torso] = TorsoOf(config).ValueOrThrow();
  if (normalizes) observations_ = AddStatistics("normalize", height_ * width_ * channels_);
  if (config.separate_value) {
    value_torso_ = AddTorso(torso, "value_");
    height_ = config.height, width_ = config.width, channels_ = config.channels;
  }
  torso_ = AddTorso(torso, "");
  channels_ += (config.reward_input ? 1 : 0) + config.action_input;
  if (config.core) AddCore();
  const int64_t features = channels_;
  if (config.head > 0) policy_hidden_ = AddDense("policy_hidden", config.head);
  policy_ = AddDense("policy", config.free_half ? config.outputs / 2 : config.outputs, 0.01,
                     config.policy_bias);
  if (config.free_half)
    free_half_ = register_parameter(
        "policy_free", torch::full({config.outputs - config.outputs / 2}, *config.free_half));
  channels_ = features;
  if (config.head > 0) value_hidden_ = AddDense("value_hidden", config.head);
  value_ = AddDense("value", 1, 1);
  if (config.normalize_value) values_ = AddStatistics("value", 1);
  if (native_ && !config.core && !config.reward_input && config.action_input == 0 &&
      !config_.bfloat16 && config.head == 0 && config.policy_bias && !config.module)
    MakeNative(torso);
  // drawn on the CPU: the same on every device
  if (!config.device.is_cpu()) to(config.device);
}

// Nothing where the torso has other layers than dense ones.
void AgentNetworkImpl::MakeNative(const NetworkDescription& torso) {
  struct Head {
    const Dense& dense;
    Tensor free;
  };
  const auto native = [&](const Torso& hidden, const std::vector<Head>& heads) {
    NetworkDescription network = torso;
    std::vector<Tensor> parameters;
    for (const Dense& dense : hidden.dense) {
      parameters.insert(parameters.end(), {dense.weight.value, dense.bias.value});
      if (dense.normalized())
        parameters.insert(parameters.end(), {dense.scale.value, dense.shift.value});
    }
    std::vector<PerceptronOp::Head> outputs;
    Layer out;
    out.name = "out";
    for (const auto& [dense, free] : heads) {
      parameters.insert(parameters.end(), {dense.weight.value, dense.bias.value});
      if (free.defined()) parameters.push_back(free);
      outputs.push_back({dense.bias.value.size(0), free.defined() ? free.size(0) : 0});
      out.out += outputs.back().outputs + outputs.back().free;
    }
    network.layers.push_back(out);
    std::optional<Native> made;
    if (!Finish(network).ok()) return made;
    auto perceptron = Perceptron::Make(std::move(network));
    if (perceptron.ok())
      made.emplace(Native{PerceptronOp(std::move(*perceptron), outputs), parameters, {}, {}});
    return made;
  };
  if (!config_.separate_value) {
    native_policy_ = native(torso_, {{policy_, free_half_}, {value_, {}}});
  } else {
    native_policy_ = native(torso_, {{policy_, free_half_}});
    native_value_ = native(value_torso_, {{value_, {}}});
  }
  PlaceNative();
}

void AgentNetworkImpl::PlaceNative() {
  std::map<std::string, Tensor> learned;
  for (const auto& parameter : named_parameters())
    if (parameter.value().requires_grad()) learned[parameter.key()] = parameter.value();
  for (std::optional<Native>* native : {&native_policy_, &native_value_}) {
    if (!*native) continue;
    for (const Tensor& own : (*native)->parameters) {
      size_t at = 0;
      for (const auto& [name, parameter] : learned) {
        if (parameter.is_same(own)) break;
        at += static_cast<size_t>(parameter.numel());
      }
      (*native)->places.push_back(at);
    }
  }
}

std::vector<Tensor> AgentNetworkImpl::Native::operator()(const Tensor& x) const {
  return frozen.empty() ? op.Apply(x, parameters) : op.Apply(x, frozen);
}

AgentNetworkImpl::Torso AgentNetworkImpl::AddTorso(const NetworkDescription& description,
                                                   const std::string& prefix) {
  Torso torso;
  if (config_.module) {
    torso.module = register_module(prefix + "torso", config_.module->Open());
    height_ = width_ = 1, channels_ = config_.module->features();
    return torso;
  }
  for (const Layer& layer : description.layers) {
    const std::string name = prefix + layer.name;
    switch (layer.kind) {
      case Layer::Kind::kResidual:
        torso.stacks.push_back(AddResidualStack(name, layer.out));
        break;
      case Layer::Kind::kConv:
        torso.convolutions.push_back(AddConvolution(name, layer.out, layer.kernel, layer.stride,
                                                    layer.padding == Padding::kSame));
        torso.convolutions.back().activation = layer.activation;
        break;
      case Layer::Kind::kDense:
        torso.dense.push_back(AddDense(name, layer.out));
        torso.dense.back().activation = layer.activation;
        if (layer.norm == Norm::kLayer) {
          Dense& dense = torso.dense.back();
          dense.scale.value = register_parameter(name + "_norm_weight", torch::ones({layer.out}));
          dense.shift.value = register_parameter(name + "_norm_bias", torch::zeros({layer.out}));
        }
        break;
      case Layer::Kind::kRnn:
      case Layer::Kind::kLstm:
      case Layer::Kind::kGru:
      case Layer::Kind::kDiagonal:
      case Layer::Kind::kNormalize:
        CHECK(false) << "MakeTorso made a layer that learners lack";
    }
  }
  return torso;
}

AgentNetworkImpl::Statistics AgentNetworkImpl::AddStatistics(const std::string& name,
                                                             int64_t numbers) {
  return {register_parameter(name + "_mean", torch::zeros({numbers}), /*requires_grad=*/false),
          register_parameter(name + "_deviation", torch::ones({numbers}),
                             /*requires_grad=*/false)};
}

void AgentNetworkImpl::SetValueStatistics(double mean, double deviation) {
  const torch::NoGradGuard no_gradient;
  const double old_mean = values_.mean.item<double>();
  const double old_deviation = values_.deviation.item<double>();
  value_.weight.value.mul_(old_deviation / deviation);
  value_.bias.value.mul_(old_deviation).add_(old_mean - mean).div_(deviation);
  values_.mean.fill_(mean), values_.deviation.fill_(deviation);
}

void AgentNetworkImpl::SetStatistics(const AgentNetworkImpl& other) {
  const torch::NoGradGuard no_gradient;
  observations_.mean.copy_(other.observations_.mean);
  observations_.deviation.copy_(other.observations_.deviation);
}

void AgentNetworkImpl::Initialize(Tensor kernel, double gain) const {
  switch (config_.initializer) {
    case Initializer::kGlorot:
      torch::nn::init::xavier_uniform_(kernel);
      break;
    case Initializer::kOrthogonal:
      torch::nn::init::orthogonal_(kernel, gain);
      break;
    case Initializer::kLecunNormal:
      TruncatedNormal(kernel, 1 / std::sqrt(static_cast<double>(kernel[0].numel())));
      break;
  }
}

AgentNetworkImpl::Convolution AgentNetworkImpl::AddConvolution(const std::string& name, int64_t out,
                                                               int64_t kernel, int64_t stride,
                                                               bool same) {
  Tensor weight = torch::empty({out, channels_, kernel, kernel});
  Initialize(weight, std::numbers::sqrt2);
  weight = weight.contiguous(torch::MemoryFormat::ChannelsLast);
  const auto size = [&](int64_t n) {
    return same ? (n + stride - 1) / stride : (n - kernel) / stride + 1;
  };
  height_ = size(height_), width_ = size(width_), channels_ = out;
  return {{register_parameter(name + "_weight", weight), {}},
          {register_parameter(name + "_bias", torch::zeros({out})), {}},
          stride,
          same};
}

AgentNetworkImpl::Dense AgentNetworkImpl::AddDense(const std::string& name, int64_t out,
                                                   double gain, bool bias) {
  Tensor weight = torch::empty({out, height_ * width_ * channels_});
  Initialize(weight, gain);
  height_ = width_ = 1, channels_ = out;
  Dense dense{{register_parameter(name + "_weight", weight), {}}, {}};
  if (bias) dense.bias.value = register_parameter(name + "_bias", torch::zeros({out}));
  return dense;
}

// A convolution, 3 x 3 max pooling at stride 2, two residual blocks.
AgentNetworkImpl::Stack AgentNetworkImpl::AddResidualStack(const std::string& name, int64_t out) {
  Stack stack;
  stack.first = AddConvolution(name + "_conv", out, 3, 1, true);
  height_ = (height_ + 1) / 2, width_ = (width_ + 1) / 2;
  for (int i = 1; i <= 4; ++i)
    stack.residual.push_back(
        AddConvolution(name + "_residual" + std::to_string(i), out, 3, 1, true));
  return stack;
}

void AgentNetworkImpl::AddCore() {
  const AgentCore& core = config_.core;
  const int64_t units = core.units;
  Tensor input = torch::empty({core.gates() * units, channels_});
  Initialize(input, 1);
  Tensor recurrent = torch::empty({core.gates() * units, units});
  torch::nn::init::orthogonal_(recurrent);
  Tensor bias = torch::zeros({4 * units});
  if (!core.gru()) bias.slice(0, units, 2 * units).fill_(1);  // do not forget, at first
  core_input_ = register_parameter(core.name() + "_input", input);
  core_recurrent_ = register_parameter(core.name() + "_recurrent", recurrent);
  core_bias_ = register_parameter(core.name() + "_bias", bias);
  channels_ = units;
}

template <typename F>
void AgentNetworkImpl::EachParameter(Torso& torso, const F& f) {
  const auto both = [&f](auto& layer) {
    f(layer.weight);
    f(layer.bias);
  };
  for (Stack& stack : torso.stacks) {
    both(stack.first);
    for (Convolution& convolution : stack.residual) both(convolution);
  }
  for (Convolution& convolution : torso.convolutions) both(convolution);
  for (Dense& dense : torso.dense) {
    both(dense);
    if (!dense.normalized()) continue;
    f(dense.scale);
    f(dense.shift);
  }
}

void AgentNetworkImpl::Freeze() {
  const torch::NoGradGuard none;
  for (std::optional<Native>* native : {&native_policy_, &native_value_})
    if (*native) {
      for (const Tensor& parameter : (*native)->parameters)
        CHECK(!parameter.requires_grad()) << "a network that learns is not frozen";
      (*native)->frozen = (*native)->op.Pack((*native)->parameters);
    }
  if (!config_.bfloat16) return;
  const auto freeze = [](Parameter& p) {
    CHECK(!p.value.requires_grad()) << "a network that learns is not frozen";
    if (p.frozen.defined())
      p.frozen.copy_(p.value);
    else
      p.frozen = p.value.to(torch::kBFloat16);
  };
  EachParameter(torso_, freeze);
  EachParameter(value_torso_, freeze);
}

void AgentNetworkImpl::Follow(const AgentNetworkImpl& other) {
  const torch::NoGradGuard none;
  std::vector<Tensor> mine = parameters();
  at::_foreach_copy_(mine, other.parameters());
}

Tensor AgentNetworkImpl::Of(const Parameter& p) const {
  if (!config_.bfloat16) return p.value;
  return p.frozen.defined() ? p.frozen : p.value.to(torch::kBFloat16);
}

Tensor AgentNetworkImpl::Apply(const Convolution& c, Tensor x) const {
  if (c.same) x = PadSame(x, c.weight.value.size(-1), c.stride, 0);
  return torch::conv2d(x, Of(c.weight), Of(c.bias), c.stride);
}

Tensor AgentNetworkImpl::Apply(const Dense& dense, const Tensor& x) const {
  Tensor sums = torch::linear(x, Of(dense.weight), Of(dense.bias));
  if (dense.normalized())
    sums = torch::layer_norm(sums, {sums.size(-1)}, Of(dense.scale), Of(dense.shift),
                             kLayerNormEpsilon);
  return Activated(std::move(sums), dense.activation);
}

Tensor AgentNetworkImpl::Apply(const Torso& torso, Tensor x) const {
  if (torso.module)
    return torso.module->forward(IsImage(config_) ? x.permute({0, 3, 1, 2}).contiguous()
                                                  : x.flatten(1));
  if (config_.bfloat16) x = x.to(torch::kBFloat16);
  if (!torso.stacks.empty() || !torso.convolutions.empty()) {
    x = x.permute({0, 3, 1, 2});  // in memory it stays as it is, which suits convolutions best
    for (const Stack& stack : torso.stacks) {
      x = PoolSame(Apply(stack.first, x));
      for (size_t i = 0; i < stack.residual.size(); i += 2) {
        const Tensor inner = Apply(stack.residual[i], x.relu());
        x = x + Apply(stack.residual[i + 1], inner.relu());
      }
    }
    if (!torso.stacks.empty()) x = x.relu();
    for (const Convolution& convolution : torso.convolutions)
      x = Activated(Apply(convolution, x), convolution.activation);
    x = x.permute({0, 2, 3, 1});  // flattened rows, columns, channels
  }
  x = x.flatten(1);
  for (const Dense& dense : torso.dense) x = Apply(dense, x);
  return x.to(torch::kFloat32);
}

Tensor AgentNetworkImpl::Step(const Tensor& x, const Tensor& state) const {
  if (config_.core.gru()) {
    const auto bias = core_bias_.split(3 * config_.core.units);
    const auto in = torch::linear(x, core_input_, bias[0]).chunk(3, 1);
    const auto recurrent = torch::linear(state, core_recurrent_).chunk(3, 1);
    const Tensor r = (in[0] + recurrent[0]).sigmoid(), z = (in[1] + recurrent[1]).sigmoid();
    const Tensor n = (in[2] + r * (recurrent[2] + bias[1])).tanh();
    return n + z * (state - n);
  }
  const auto before = state.chunk(2, 1);
  const auto gates =
      (torch::linear(x, core_input_, core_bias_) + torch::linear(before[0], core_recurrent_))
          .chunk(4, 1);
  const Tensor c = gates[1].sigmoid() * before[1] + gates[0].sigmoid() * gates[2].tanh();
  return torch::cat({gates[3].sigmoid() * c.tanh(), c}, 1);
}

AgentNetworkImpl::Output AgentNetworkImpl::forward(const Input& input, const Tensor& state) {
  const int64_t time = input.observation.size(0), batch = input.observation.size(1);
  const Tensor x = Numbers(input.observation.flatten(0, 1));
  Output output;
  output.state = state;
  Tensor policy, value;
  if (native_policy_) {
    const std::vector<Tensor> heads = (*native_policy_)(x.flatten(1));
    policy = heads[0], value = native_value_ ? (*native_value_)(x.flatten(1))[0] : heads[1];
  } else {
    std::tie(policy, value) = PolicyAndValue(input, x, output);
  }
  output.policy = policy.view({time, batch, -1});
  if (values_.mean.defined()) value = value * values_.deviation + values_.mean;
  output.value = value.view({time, batch});
  return output;
}

// In one pass, a row at a time, where torch makes up to six.
Tensor AgentNetworkImpl::Numbers(const Tensor& x) const {
  const bool bytes = x.scalar_type() == torch::kUInt8, normalizes = observations_.mean.defined();
  if (!native_ || !(bytes || normalizes)) {
    const Tensor numbers = x.to(torch::kFloat32), unit = bytes ? numbers / 255 : numbers;
    if (!normalizes) return unit;
    return ((unit.flatten(1) - observations_.mean) /
            observations_.deviation.clamp_min(kDeviationMin))
        .clamp(-kNormalizedMax, kNormalizedMax)
        .view(x.sizes());
  }
  const Tensor from = x.contiguous();
  Tensor to = torch::empty(from.sizes());
  const auto rows = static_cast<size_t>(from.size(0));
  const size_t size = rows == 0 ? 0 : static_cast<size_t>(from.numel()) / rows;
  for (size_t row = 0; row < rows; ++row) {
    const std::span<float> numbers(to.data_ptr<float>() + row * size, size);
    if (!bytes) {
      Normalize(from.data_ptr<float>() + row * size, numbers);
      continue;
    }
    const uint8_t* values = from.data_ptr<uint8_t>() + row * size;
    for (size_t i = 0; i < size; ++i) numbers[i] = static_cast<float>(values[i]) / 255;
    if (normalizes) Normalize(numbers.data(), numbers);
  }
  return to;
}

void AgentNetworkImpl::Normalize(const float* observation, std::span<float> to) const {
  if (!observations_.mean.defined()) {
    std::copy_n(observation, to.size(), to.data());
    return;
  }
  const float* mean = observations_.mean.data_ptr<float>();
  const float* deviation = observations_.deviation.data_ptr<float>();
  for (size_t i = 0; i < to.size(); ++i)
    to[i] = NormalizedInput(observation[i], mean[i], deviation[i]);
}

AgentNetworkImpl::MeanAndDeviation AgentNetworkImpl::ValueStatistics() const {
  if (!values_.mean.defined()) return {0, 1};
  return {*values_.mean.data_ptr<float>(), *values_.deviation.data_ptr<float>()};
}

// Outputs of the heads; sets output.state and output.states where there is a core.
std::pair<Tensor, Tensor> AgentNetworkImpl::PolicyAndValue(const Input& input, Tensor x,
                                                           Output& output) const {
  const int64_t time = input.observation.size(0), batch = input.observation.size(1);
  std::vector<Tensor> more;
  if (config_.reward_input) {
    const Tensor reward = input.reward.flatten().unsqueeze(1);
    more.push_back(config_.reward_clip ? reward.clamp(-1, 1) : reward);
  }
  if (config_.action_input > 0)
    more.push_back(
        torch::one_hot(input.action.flatten(), config_.action_input).to(torch::kFloat32));
  const auto features = [&](const Torso& torso) {
    std::vector<Tensor> parts = {Apply(torso, x)};
    parts.insert(parts.end(), more.begin(), more.end());
    return parts.size() == 1 ? parts[0] : torch::cat(parts, 1);
  };
  Tensor of_value;
  if (config_.separate_value) of_value = features(value_torso_);
  x = features(torso_);
  if (config_.core) {
    const Tensor steps = x.view({time, batch, -1});
    std::vector<Tensor> states;
    for (int64_t t = 0; t < time; ++t) {
      const Tensor kept = input.first[t].logical_not().unsqueeze(1);
      output.state = Step(steps[t], output.state * kept);
      states.push_back(output.state);
    }
    output.states = torch::stack(states);
    x = output.states.slice(2, 0, config_.core.units).flatten(0, 1);
  }
  Tensor policy =
      torch::linear(Hidden(policy_hidden_, x), policy_.weight.value, policy_.bias.value);
  if (config_.free_half) policy = torch::cat({policy, free_half_.expand({x.size(0), -1})}, 1);
  return {policy, torch::linear(Hidden(value_hidden_, config_.separate_value ? of_value : x),
                                value_.weight.value, value_.bias.value)};
}

Tensor AgentNetworkImpl::Hidden(const Dense& hidden, const Tensor& x) const {
  if (config_.head == 0) return x;
  return torch::linear(x, hidden.weight.value, hidden.bias.value).relu();
}

int64_t AgentNetworkImpl::parameter_count() const {
  int64_t count = 0;
  for (const Tensor& parameter : parameters())
    if (parameter.requires_grad()) count += parameter.numel();
  return count;
}

}  // namespace samara
