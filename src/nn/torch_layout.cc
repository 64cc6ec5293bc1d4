// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/torch_layout.h"

#include "core/check.h"

namespace samara {
namespace {

// A tensor seen as [height][width][in][out] in canonical order and [out][in][height][width] in
// PyTorch's: a convolution's window, or the map that a dense layer reads.
struct Part {
  TensorSlice slice;
  int64_t height = 1, width = 1, in = 1, out = 1;

  std::vector<int64_t> torch_shape() const {
    if (slice.shape.size() == 4) return {out, in, height, width};
    if (slice.shape.size() == 2) return {out, height * width * in};
    return {out};
  }
  // calls visit(canonical index, torch index) for every element
  template <typename Visit>
  void ForEach(Visit visit) const {
    size_t torch = 0;
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t c = 0; c < in; ++c) {
        for (int64_t y = 0; y < height; ++y) {
          for (int64_t x = 0; x < width; ++x) {
            visit(slice.offset + static_cast<size_t>(((y * width + x) * in + c) * out + o),
                  torch++);
          }
        }
      }
    }
  }
};

std::vector<Part> PartsOf(const NetworkDescription& network) {
  std::vector<Part> parts;
  for (TensorSlice& slice : Tensors(network)) {
    Part part;
    const std::vector<int64_t>& shape = slice.shape;
    part.out = shape.back();
    if (shape.size() == 4) {
      part.height = shape[0], part.width = shape[1], part.in = shape[2];
    } else if (shape.size() == 2) {
      part.in = shape[0];
    }
    if (shape.size() == 2 && slice.offset == network.layers[slice.layer].weight_offset) {
      if (slice.layer == 0) {
        part.height = network.height, part.width = network.width, part.in = network.channels;
      } else {
        const Layer& previous = network.layers[slice.layer - 1];
        part.height = previous.out_height, part.width = previous.out_width, part.in = previous.out;
      }
    }
    part.slice = std::move(slice);
    parts.push_back(std::move(part));
  }
  return parts;
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
  for (const Part& part : PartsOf(network)) {
    TorchTensor tensor{part.slice.name, part.torch_shape(), std::vector<float>(part.slice.count)};
    part.ForEach([&](size_t from, size_t to) { tensor.values[to] = canonical[from]; });
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Result<std::vector<float>> FromTorchLayout(const NetworkDescription& network,
                                           std::span<const TorchTensor> tensors) {
  const std::vector<Part> parts = PartsOf(network);
  if (tensors.size() != parts.size()) {
    return Status(Code::kBadData, std::to_string(tensors.size()) + " tensors, network " +
                                      network.name + " has " + std::to_string(parts.size()));
  }
  std::vector<float> canonical(network.parameter_count);
  for (const Part& part : parts) {
    ASSIGN_OR_RETURN(const TorchTensor* tensor,
                     Find(tensors, part.slice.name, part.torch_shape(), part.slice.count));
    part.ForEach([&](size_t to, size_t from) { canonical[to] = tensor->values[from]; });
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
