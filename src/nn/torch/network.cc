#include "nn/torch/network.h"

#include "core/check.h"
#include "nn/torch_layout.h"

namespace samara {
torch::Tensor Activated(torch::Tensor x, Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return x.relu_();
    case Activation::kTanh:
      return x.tanh_();
    case Activation::kSigmoid:
      return x.sigmoid_();
    case Activation::kElu:
      return torch::elu_(x);
    case Activation::kSelu:
      return torch::selu_(x);
    case Activation::kSilu:
      return torch::silu(x);
    case Activation::kGelu:
      return torch::gelu(x, "tanh");
    case Activation::kLrelu:
      return torch::leaky_relu_(x, 0.01);
    case Activation::kLrelu0p2:
      return torch::leaky_relu_(x, 0.2);
  }
  return x;
}

namespace {

using torch::Tensor;

// Statistics as buffers, and scales and shifts as parameters.
class Statistics : public torch::nn::Module {
 public:
  Statistics(const std::vector<std::string>& buffers, int64_t n,
             const std::vector<std::string>& parameters = {}) {
    for (const std::string& name : buffers) register_buffer(name, torch::zeros({n}));
    for (const std::string& name : parameters) register_parameter(name, torch::zeros({n}));
  }
};

std::shared_ptr<torch::nn::Module> ModuleOf(const Layer& layer) {
  switch (layer.kind) {
    case Layer::Kind::kConv:
      return torch::nn::Conv2d(
                 torch::nn::Conv2dOptions(layer.in, layer.out, layer.kernel).stride(layer.stride))
          .ptr();
    case Layer::Kind::kRnn: {
      auto options = torch::nn::RNNCellOptions(layer.in, layer.out);
      if (layer.activation == Activation::kRelu) options.nonlinearity(torch::kReLU);
      return torch::nn::RNNCell(options).ptr();
    }
    case Layer::Kind::kLstm:
      return torch::nn::LSTMCell(layer.in, layer.out).ptr();
    case Layer::Kind::kGru:
      return torch::nn::GRUCell(layer.in, layer.out).ptr();
    case Layer::Kind::kNormalize:
      return std::make_shared<Statistics>(std::vector<std::string>{"mean", "std"}, layer.out);
    case Layer::Kind::kDense:
    case Layer::Kind::kResidual:
      break;
    case Layer::Kind::kDiagonal:
      CHECK(false) << "a diagonal layer is of evolution only";
  }
  return torch::nn::Linear(torch::nn::LinearOptions(layer.in, layer.out).bias(layer.bias)).ptr();
}

Tensor Buffer(const torch::nn::Module& module, const std::string& name) {
  return module.named_buffers(/*recurse=*/false)[name];
}

// (x - mean) / max(std, floor), clipped.
Tensor Normalized(const Tensor& x, const torch::nn::Module& statistics) {
  const Tensor deviation = Buffer(statistics, "std").clamp_min(kDeviationMin);
  return ((x - Buffer(statistics, "mean")) / deviation).clamp(-kNormalizedMax, kNormalizedMax);
}

std::string VbnName(const Layer& layer) { return layer.name + "_vbn"; }

// Sums of a layer without bias where its Norm adds that.
Tensor Sums(const Layer& layer, torch::nn::Module& module, const Tensor& x) {
  const auto parameters = module.named_parameters();
  const Tensor bias = layer.norm == Norm::kVbn || !layer.bias ? Tensor() : parameters["bias"];
  if (layer.kind == Layer::Kind::kConv)
    return torch::conv2d(torch::constant_pad_nd(x, TorchPadding(layer)), parameters["weight"], bias,
                         layer.stride);
  return torch::linear(x.flatten(1), parameters["weight"], bias);
}

Tensor BatchNormalized(const Layer& layer, const Tensor& x, const Tensor& bias,
                       const torch::nn::Module& vbn) {
  const bool affine = layer.norm == Norm::kVbnAffine;
  const auto parameters = vbn.named_parameters();
  return torch::batch_norm(x, affine ? parameters["weight"] : Tensor(),
                           affine ? parameters["bias"] : bias, Buffer(vbn, "running_mean"),
                           Buffer(vbn, "running_var"), /*training=*/false, 0, kVbnEpsilon, false);
}

// A recurrent layer's output, and its state.
Tensor RunCell(const Layer& layer, torch::nn::Module& module, const Tensor& x,
               std::pair<Tensor, Tensor>& state) {
  auto& [hidden, memory] = state;
  if (!hidden.defined()) hidden = memory = x.new_zeros({x.size(0), layer.out});
  if (layer.kind == Layer::Kind::kLstm)
    std::tie(hidden, memory) =
        module.as<torch::nn::LSTMCell>()->forward(x, std::tuple(hidden, memory));
  else if (layer.kind == Layer::Kind::kGru)
    hidden = module.as<torch::nn::GRUCell>()->forward(x, hidden);
  else
    hidden = module.as<torch::nn::RNNCell>()->forward(x, hidden);
  return hidden;
}

}  // namespace

TorchNetworkImpl::TorchNetworkImpl(NetworkDescription network) : network_(std::move(network)) {
  for (const Layer& layer : network_.layers) {
    register_module(layer.name, ModuleOf(layer));
    if (layer.norm == Norm::kNone) continue;
    const auto parameters = layer.norm == Norm::kVbnAffine
                                ? std::vector<std::string>{"weight", "bias"}
                                : std::vector<std::string>{};
    register_module(VbnName(layer), std::make_shared<Statistics>(
                                        std::vector<std::string>{"running_mean", "running_var"},
                                        layer.out, parameters));
  }
}

void TorchNetworkImpl::Load(std::span<const float> canonical) {
  const torch::NoGradGuard no_grad;
  auto parameters = named_parameters();
  for (const auto& buffer : named_buffers()) parameters.insert(buffer.key(), buffer.value());
  std::vector<float> rounded(canonical.begin(), canonical.end());
  RoundToStorage(network_, rounded);
  for (TorchTensor& tensor : ToTorchLayout(network_, rounded)) {
    parameters[tensor.name].copy_(torch::from_blob(tensor.values.data(), tensor.shape));
  }
}

std::vector<float> TorchNetworkImpl::Store() const {
  std::vector<TorchTensor> tensors;
  auto parameters = named_parameters();
  for (const auto& buffer : named_buffers()) parameters.insert(buffer.key(), buffer.value());
  for (const auto& item : parameters) {
    const torch::Tensor value = item.value().detach().cpu().contiguous();
    const float* data = value.const_data_ptr<float>();
    tensors.push_back({item.key(), value.sizes().vec(), {data, data + value.numel()}});
  }
  return FromTorchLayout(network_, tensors).ValueOrThrow();
}

torch::Tensor TorchNetworkImpl::forward(const torch::Tensor& observations, State* state) {
  torch::Tensor x = observations.permute({0, 3, 1, 2});
  State fresh;
  State& states = state != nullptr ? *state : fresh;
  const auto modules = named_children();
  for (const Layer& layer : network_.layers) {
    const auto& module = modules[layer.name];
    if (layer.recurrent()) {
      x = RunCell(layer, *module, x.flatten(1), states[layer.name]);
      continue;
    }
    if (layer.kind == Layer::Kind::kNormalize) {
      x = Normalized(x.flatten(1), *module);
      continue;
    }
    x = Sums(layer, *module, x);
    if (layer.norm != Norm::kNone)
      x = BatchNormalized(layer, x, module->named_parameters()["bias"], *modules[VbnName(layer)]);
    x = Activated(x, layer.activation);
  }
  return x;
}

}  // namespace samara
