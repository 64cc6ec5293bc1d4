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
  }
  return x;
}

TorchNetworkImpl::TorchNetworkImpl(NetworkDescription network) : network_(std::move(network)) {
  for (const Layer& layer : network_.layers) {
    if (layer.kind == Layer::Kind::kConv) {
      const auto options =
          torch::nn::Conv2dOptions(layer.in, layer.out, layer.kernel).stride(layer.stride);
      register_module(layer.name, torch::nn::Conv2d(options));
    } else {
      register_module(layer.name, torch::nn::Linear(layer.in, layer.out));
    }
  }
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

torch::Tensor TorchNetworkImpl::forward(const torch::Tensor& observations) {
  torch::Tensor x = observations.permute({0, 3, 1, 2});
  const auto modules = named_children();
  for (const Layer& layer : network_.layers) {
    const auto& module = modules[layer.name];
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
