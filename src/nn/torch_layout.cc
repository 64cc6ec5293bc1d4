// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/torch_layout.h"

#include "core/check.h"

namespace samara {
namespace {

// A weight seen as [height][width][in][out] in canonical order and [out][in][height][width] in
// PyTorch's: a convolution's window, or the map that a dense layer reads.
struct Weight {
  int64_t height, width, in, out;

  // calls visit(canonical index, torch index) for every element
  template <typename Visit>
  void ForEach(Visit visit) const {
    size_t torch = 0;
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t c = 0; c < in; ++c) {
        for (int64_t y = 0; y < height; ++y) {
          for (int64_t x = 0; x < width; ++x) {
            visit(static_cast<size_t>(((y * width + x) * in + c) * out + o), torch++);
          }
        }
      }
    }
  }
};

Weight WeightOf(const NetworkDescription& network, size_t index) {
  const Layer& layer = network.layers[index];
  if (layer.kind == Layer::Kind::kConv) return {layer.kernel, layer.kernel, layer.in, layer.out};
  if (index == 0) return {network.height, network.width, network.channels, layer.out};
  const Layer& previous = network.layers[index - 1];
  return {previous.out_height, previous.out_width, previous.out, layer.out};
}

std::vector<int64_t> TorchShape(const Layer& layer) {
  if (layer.kind == Layer::Kind::kDense) return {layer.out, layer.in};
  return {layer.out, layer.in, layer.kernel, layer.kernel};
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text;
  for (int64_t d : shape) text += (text.empty() ? "" : " x ") + std::to_string(d);
  return text.empty() ? "a scalar" : text;
}

Result<const TorchTensor*> Find(std::span<const TorchTensor> tensors, const std::string& name,
                                const std::vector<int64_t>& shape, size_t count) {
  const TorchTensor* found = nullptr;
  for (const TorchTensor& tensor : tensors) {
    if (tensor.name != name) continue;
    if (found != nullptr) return Status(Code::kBadData, "tensor '" + name + "' is there twice");
    found = &tensor;
  }
  if (found == nullptr) return Status(Code::kBadData, "tensor '" + name + "' is missing");
  if (found->shape != shape || found->values.size() != count) {
    return Status(Code::kBadData, "tensor '" + name + "' is " + ShapeText(found->shape) +
                                      ", expected " + ShapeText(shape));
  }
  return found;
}

}  // namespace

std::vector<TorchTensor> ToTorchLayout(const NetworkDescription& network,
                                       std::span<const float> canonical) {
  CHECK_EQ(canonical.size(), network.parameter_count);
  std::vector<TorchTensor> tensors;
  for (size_t i = 0; i < network.layers.size(); ++i) {
    const Layer& layer = network.layers[i];
    TorchTensor weight{layer.name + ".weight", TorchShape(layer),
                       std::vector<float>(layer.weight_count)};
    WeightOf(network, i).ForEach([&](size_t from, size_t to) {
      weight.values[to] = canonical[layer.weight_offset + from];
    });
    tensors.push_back(std::move(weight));
    const auto bias = canonical.subspan(layer.bias_offset, static_cast<size_t>(layer.out));
    tensors.push_back({layer.name + ".bias", {layer.out}, {bias.begin(), bias.end()}});
  }
  return tensors;
}

Result<std::vector<float>> FromTorchLayout(const NetworkDescription& network,
                                           std::span<const TorchTensor> tensors) {
  if (tensors.size() != 2 * network.layers.size()) {
    return Status(Code::kBadData, std::to_string(tensors.size()) + " tensors, network " +
                                      network.name + " has " +
                                      std::to_string(2 * network.layers.size()));
  }
  std::vector<float> canonical(network.parameter_count);
  for (size_t i = 0; i < network.layers.size(); ++i) {
    const Layer& layer = network.layers[i];
    ASSIGN_OR_RETURN(const TorchTensor* weight,
                     Find(tensors, layer.name + ".weight", TorchShape(layer), layer.weight_count));
    WeightOf(network, i).ForEach([&](size_t to, size_t from) {
      canonical[layer.weight_offset + to] = weight->values[from];
    });
    ASSIGN_OR_RETURN(const TorchTensor* bias, Find(tensors, layer.name + ".bias", {layer.out},
                                                   static_cast<size_t>(layer.out)));
    std::copy(bias->values.begin(), bias->values.end(), canonical.begin() + layer.bias_offset);
  }
  return canonical;
}

std::array<int64_t, 4> TorchPadding(const Layer& layer) {
  const auto after = [&layer](int64_t in, int64_t out, int64_t before) {
    return std::max<int64_t>(0, (out - 1) * layer.stride + layer.kernel - in - before);
  };
  return {layer.pad_before_columns,
          after(layer.in_width, layer.out_width, layer.pad_before_columns), layer.pad_before,
          after(layer.in_height, layer.out_height, layer.pad_before)};
}

}  // namespace samara
