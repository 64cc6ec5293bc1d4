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
    case Activation::kLrelu:
      return torch::leaky_relu_(x, 0.01);
    case Activation::kLrelu0p2:
      return torch::leaky_relu_(x, 0.2);
  }
  return x;
}

namespace {

using torch::Tensor;

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
    case Layer::Kind::kDense:
    case Layer::Kind::kResidual:
      break;
    case Layer::Kind::kDiagonal:
      CHECK(false) << "a diagonal layer is of evolution only";
  }
  return torch::nn::Linear(layer.in, layer.out).ptr();
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
  for (const Layer& layer : network_.layers) register_module(layer.name, ModuleOf(layer));
}

void TorchNetworkImpl::Load(std::span<const float> canonical) {
  const torch::NoGradGuard no_grad;
  auto parameters = named_parameters();
  std::vector<float> rounded(canonical.begin(), canonical.end());
  RoundToStorage(network_, rounded);
  for (TorchTensor& tensor : ToTorchLayout(network_, rounded)) {
    parameters[tensor.name].copy_(torch::from_blob(tensor.values.data(), tensor.shape));
  }
}

std::vector<float> TorchNetworkImpl::Store() const {
  std::vector<TorchTensor> tensors;
  for (const auto& item : named_parameters()) {
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
    if (layer.kind == Layer::Kind::kConv) {
      x = torch::constant_pad_nd(x, TorchPadding(layer));
      x = module->as<torch::nn::Conv2d>()->forward(x);
    } else {
      x = module->as<torch::nn::Linear>()->forward(x.flatten(1));
    }
    x = Activated(x, layer.activation);
  }
  return x;
}

}  // namespace samara
