// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/network.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "core/config.h"

namespace samara {
namespace {

// Far above every published network, far below what could overflow an int64_t product.
constexpr int64_t kUnitsMax = 1 << 20;
constexpr int64_t kParametersMax = int64_t{1} << 31;
constexpr size_t kLayersMax = 128;

Layer Conv(std::string name, int64_t out, int64_t kernel, int64_t stride, Padding padding) {
  Layer layer;
  layer.kind = Layer::Kind::kConv;
  layer.name = std::move(name);
  layer.out = out;
  layer.kernel = kernel;
  layer.stride = stride;
  layer.padding = padding;
  layer.activation = Activation::kRelu;
  return layer;
}

Layer Dense(std::string name, int64_t out, Activation activation) {
  Layer layer;
  layer.name = std::move(name);
  layer.out = out;
  layer.activation = activation;
  return layer;
}

struct Window {
  int64_t out = 0, pad_before = 0;
};

// Output length and leading zeros of a window along one axis, as TensorFlow defines them: SAME
// gives ceil(in / stride) outputs and puts the smaller half of the zeros before.
std::optional<Window> Slide(int64_t in, const Layer& layer) {
  if (layer.padding == Padding::kValid) {
    if (in < layer.kernel) return std::nullopt;
    return Window{(in - layer.kernel) / layer.stride + 1, 0};
  }
  const int64_t out = (in + layer.stride - 1) / layer.stride;
  const int64_t zeros = std::max<int64_t>(0, (out - 1) * layer.stride + layer.kernel - in);
  return Window{out, zeros / 2};
}

Status FinishConv(const Layer& previous, Layer& layer) {
  layer.in_height = previous.out_height;
  layer.in_width = previous.out_width;
  layer.in = previous.out;
  const std::string shape =
      std::to_string(layer.in_height) + " x " + std::to_string(layer.in_width);
  if (layer.kernel < 1 || layer.kernel > 64 || layer.stride < 1 || layer.stride > layer.kernel) {
    return {Code::kConfig, "layer " + layer.name + ": kernel " + std::to_string(layer.kernel) +
                               " and stride " + std::to_string(layer.stride) +
                               ", expected 1 <= stride <= kernel <= 64"};
  }
  const auto rows = Slide(layer.in_height, layer), columns = Slide(layer.in_width, layer);
  if (!rows || !columns) {
    return {Code::kConfig, "layer " + layer.name + ": a map of " + shape + " is smaller than its " +
                               std::to_string(layer.kernel) + " x " + std::to_string(layer.kernel) +
                               " window; use larger observations or an mlp"};
  }
  layer.out_height = rows->out;
  layer.out_width = columns->out;
  layer.pad_before = rows->pad_before;
  layer.pad_before_columns = columns->pad_before;
  return Status::Ok();
}

void FinishDense(const Layer& previous, Layer& layer) {
  layer.in_height = layer.in_width = 1;
  layer.in = previous.out_height * previous.out_width * previous.out;
  layer.out_height = layer.out_width = 1;
}

bool InRange(int64_t value, int64_t max) { return value >= 1 && value <= max; }

// "mlp-16-16-relu" -> its layers; nothing when the name has another form.
std::optional<std::vector<Layer>> ParseMlp(std::string_view name, int64_t outputs) {
  constexpr std::string_view kPrefix = "mlp-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const size_t last = name.rfind('-');
  if (last == std::string_view::npos) return std::nullopt;
  const std::string_view word = name.substr(last + 1);
  if (word != "relu" && word != "tanh") return std::nullopt;
  const Activation activation = word == "relu" ? Activation::kRelu : Activation::kTanh;
  name = name.substr(0, last);

  std::vector<Layer> layers;
  while (true) {
    int64_t units = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), units);
    const size_t used = static_cast<size_t>(end - name.data());
    if (error != std::errc() || !InRange(units, kUnitsMax) || layers.size() + 2 > kLayersMax) {
      return std::nullopt;
    }
    layers.push_back(Dense("fc" + std::to_string(layers.size() + 1), units, activation));
    if (used == name.size()) break;
    if (name[used] != '-') return std::nullopt;
    name.remove_prefix(used + 1);
  }
  layers.push_back(Dense("out", outputs, Activation::kNone));
  return layers;
}

std::vector<Layer> ImageLayers(std::string_view name, int64_t outputs) {
  const Padding padding = name == "Nature" ? Padding::kValid : Padding::kSame;
  std::vector<Layer> layers;
  if (name == "Model") {
    layers = {Conv("conv1", 16, 8, 4, padding), Conv("conv2", 32, 4, 2, padding),
              Dense("fc", 256, Activation::kRelu)};
  } else {
    layers = {Conv("conv1", 32, 8, 4, padding), Conv("conv2", 64, 4, 2, padding),
              Conv("conv3", 64, 3, 1, padding), Dense("fc", 512, Activation::kRelu)};
  }
  layers.push_back(Dense("out", outputs, Activation::kNone));
  return layers;
}

bool IsImageNetwork(std::string_view name) {
  return name == "LargeModel" || name == "Model" || name == "Nature";
}

Status UnknownName(std::string_view name) {
  return {Code::kConfig, "no network '" + std::string(name) + "', nearest is '" +
                             Nearest(name, NetworkNames()) +
                             "'; expected LargeModel, Model, Nature, linear or "
                             "mlp-<units>-..-<relu|tanh>"};
}

TensorSlice Slice(const Layer& layer, bool bias, bool output_layer) {
  TensorSlice slice;
  slice.name = layer.name + (bias ? ".bias" : ".weight");
  slice.bias = bias;
  slice.fan_in = layer.fan_in();
  slice.output_layer = output_layer;
  slice.offset = bias ? layer.bias_offset : layer.weight_offset;
  slice.count = bias ? static_cast<size_t>(layer.out) : layer.weight_count;
  if (bias) {
    slice.shape = {layer.out};
  } else if (layer.kind == Layer::Kind::kConv) {
    slice.shape = {layer.kernel, layer.kernel, layer.in, layer.out};
  } else {
    slice.shape = {layer.in, layer.out};
  }
  return slice;
}

}  // namespace

Status Finish(NetworkDescription& network) {
  Layer previous;
  previous.out_height = network.height;
  previous.out_width = network.width;
  previous.out = network.channels;
  if (!InRange(network.height, 4096) || !InRange(network.width, 4096) ||
      !InRange(network.channels, kUnitsMax) || network.layers.empty() ||
      network.layers.size() > kLayersMax) {
    return {Code::kConfig, "network " + network.name + ": input " + std::to_string(network.height) +
                               " x " + std::to_string(network.width) + " x " +
                               std::to_string(network.channels) + " with " +
                               std::to_string(network.layers.size()) +
                               " layers is out of range (maps to 4096 x 4096, 1 to 128 layers)"};
  }
  int64_t offset = 0;
  for (Layer& layer : network.layers) {
    if (!InRange(layer.out, kUnitsMax)) {
      return {Code::kConfig, "layer " + layer.name + ": " + std::to_string(layer.out) +
                                 " outputs, expected 1 to " + std::to_string(kUnitsMax)};
    }
    if (layer.kind == Layer::Kind::kConv) {
      RETURN_IF_ERROR(FinishConv(previous, layer));
    } else {
      FinishDense(previous, layer);
    }
    // fan_in has at most 45 bits, out 21: compared before they are multiplied
    if (layer.fan_in() > kParametersMax / layer.out - 1) {
      return {Code::kConfig, "network " + network.name + ": layer " + layer.name +
                                 " would hold more than 2^31 parameters; use a smaller network"};
    }
    layer.weight_offset = static_cast<size_t>(offset);
    layer.weight_count = static_cast<size_t>(layer.fan_in() * layer.out);
    layer.bias_offset = layer.weight_offset + layer.weight_count;
    offset += (layer.fan_in() + 1) * layer.out;
    previous = layer;
  }
  if (offset > kParametersMax) {
    return {Code::kConfig, "network " + network.name +
                               " would hold more than 2^31 parameters; use a smaller network"};
  }
  network.parameter_count = static_cast<size_t>(offset);
  return Status::Ok();
}

std::vector<TensorSlice> Tensors(const NetworkDescription& network) {
  std::vector<TensorSlice> slices;
  for (const Layer& layer : network.layers) {
    const bool output_layer = &layer == &network.layers.back();
    slices.push_back(Slice(layer, false, output_layer));
    slices.push_back(Slice(layer, true, output_layer));
  }
  return slices;
}

Result<NetworkDescription> MakeNetwork(std::string_view name, int64_t height, int64_t width,
                                       int64_t channels, int64_t outputs) {
  if (name == "nature") name = "Nature";  // as learning runs spell it
  NetworkDescription network;
  network.name = name;
  network.height = height;
  network.width = width;
  network.channels = channels;
  if (IsImageNetwork(name)) {
    if (height == 1 && width == 1) {
      return Status(Code::kConfig, "network '" + std::string(name) +
                                       "' needs images, the observations are vectors of " +
                                       std::to_string(channels) + "; use linear or mlp-64-64-tanh");
    }
    network.layers = ImageLayers(name, outputs);
  } else if (name == "linear") {
    network.layers = {Dense("out", outputs, Activation::kNone)};
  } else if (auto layers = ParseMlp(name, outputs)) {
    network.layers = std::move(*layers);
  } else {
    return UnknownName(name);
  }
  RETURN_IF_ERROR(Finish(network));
  return network;
}

std::vector<std::string> NetworkNames() {
  return {"LargeModel",     "Model",          "Nature",          "linear",
          "mlp-16-16-relu", "mlp-64-64-tanh", "mlp-256-256-tanh"};
}

std::vector<std::string> AgentImageNetworkNames() {
  return {"nature", "impala_shallow", "impala_deep", "football"};
}

std::string_view Name(Storage storage) {
  return storage == Storage::kFloat32 ? "float32" : storage == Storage::kBf16 ? "bf16" : "int8";
}

Result<Storage> ParseStorage(std::string_view name) {
  for (const Storage storage : {Storage::kFloat32, Storage::kBf16, Storage::kInt8}) {
    if (name == Name(storage)) return storage;
  }
  return Status(Code::kConfig,
                "network.storage=" + std::string(name) + ": expected float32, bf16 or int8");
}

Storage StorageOf(const NetworkDescription& network, size_t layer) {
  const bool hidden_dense =
      network.layers[layer].kind == Layer::Kind::kDense && layer + 1 < network.layers.size();
  return network.storage == Storage::kInt8 && !hidden_dense ? Storage::kFloat32 : network.storage;
}

float Int8Scale(float magnitude) {
  const float scale = std::ldexp(1.0f, std::ilogb(std::max(magnitude, 0x1p-100f)) - 6);
  return magnitude > 127 * scale ? 2 * scale : scale;
}

void RoundToStorage(const NetworkDescription& network, std::span<float> canonical) {
  for (size_t i = 0; i < network.layers.size(); ++i) {
    const Layer& layer = network.layers[i];
    const auto weights = canonical.subspan(layer.weight_offset, layer.weight_count);
    const Storage storage = StorageOf(network, i);
    if (storage == Storage::kBf16) {
      for (float& w : weights) w = RoundToBf16(w);
    } else if (storage == Storage::kInt8) {
      float magnitude = 0;
      for (const float w : weights) magnitude = std::max(magnitude, std::abs(w));
      const float scale = Int8Scale(magnitude);
      for (float& w : weights) w = static_cast<float>(RoundToInt8(w, scale)) * scale;
    }
  }
}

}  // namespace samara
