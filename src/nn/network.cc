// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/network.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/log.h"
#include "nn/layer_line.h"

namespace samara {
namespace {

constexpr int64_t kParametersMax = int64_t{1} << 31;

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
  if (layer.kernel < 1 || layer.kernel > kKernelMax || layer.stride < 1 ||
      layer.stride > layer.kernel) {
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

// Dense and recurrent layers.
void FinishDense(const Layer& previous, Layer& layer) {
  layer.in_height = layer.in_width = 1;
  layer.in = previous.out_height * previous.out_width * previous.out;
  layer.out_height = layer.out_width = 1;
}

bool InRange(int64_t value, int64_t max) { return value >= 1 && value <= max; }

Status FinishNormalize(const NetworkDescription& network, Layer& layer) {
  if (&layer != network.layers.data() || network.height != 1 || network.width != 1)
    return {Code::kConfig, "network " + network.name +
                               ": normalize is the first layer of a network whose observations are "
                               "vectors; of images learners have it"};
  layer.out = network.channels;
  return Status::Ok();
}

// A 3 x 3 convolution that keeps the map, then pooling that halves it.
void FinishResidual(const Layer& previous, Layer& layer) {
  layer.in_height = previous.out_height;
  layer.in_width = previous.out_width;
  layer.in = previous.out;
  layer.kernel = 3;
  layer.out_height = (layer.in_height + 1) / 2;
  layer.out_width = (layer.in_width + 1) / 2;
}

TensorSlice Slice(const NetworkDescription& network, size_t index, const char* name,
                  std::vector<int64_t> shape, size_t offset) {
  TensorSlice slice;
  slice.name = network.layers[index].name + name;
  slice.layer = index;
  slice.offset = offset;
  slice.count = 1;
  for (const int64_t d : shape) slice.count *= static_cast<size_t>(d);
  slice.shape = std::move(shape);
  slice.output_layer = index + 1 == network.layers.size();
  return slice;
}

// Weights, biases, scales and shifts; parameters of recurrent layers come in pairs.
void AddParameters(const NetworkDescription& network, size_t index,
                   std::vector<TensorSlice>& slices) {
  const Layer& layer = network.layers[index];
  const int64_t window = layer.kind == Layer::Kind::kConv ? layer.kernel * layer.kernel : 1;
  const auto add = [&](const char* name, std::vector<int64_t> shape, size_t offset, int64_t fan_in,
                       bool bias) {
    TensorSlice slice = Slice(network, index, name, std::move(shape), offset);
    slice.fan_in = fan_in;
    slice.fan_out = window * layer.out;
    slice.bias = bias;
    slices.push_back(std::move(slice));
  };
  if (layer.kind == Layer::Kind::kNormalize) return;
  const int64_t columns = layer.columns();
  if (layer.kind == Layer::Kind::kDiagonal)
    return add(".weight", {layer.out}, layer.weight_offset, 1, false);
  if (layer.recurrent()) {
    add(".weight_ih", {layer.in, columns}, layer.weight_offset, layer.in, false);
    add(".weight_hh", {layer.out, columns}, layer.recurrent_offset, layer.out, false);
    add(".bias_ih", {columns}, layer.bias_offset, layer.in, true);
    add(".bias_hh", {columns}, layer.recurrent_bias_offset, layer.out, true);
    return;
  }
  std::vector<int64_t> shape = {layer.in, layer.out};
  if (layer.kind == Layer::Kind::kConv) shape = {layer.kernel, layer.kernel, layer.in, layer.out};
  add(".weight", std::move(shape), layer.weight_offset, layer.fan_in(), false);
  if (layer.bias) add(".bias", {layer.out}, layer.bias_offset, layer.fan_in(), true);
  if (!layer.has_scales()) return;
  const bool of_layer = layer.norm == Norm::kLayer;
  add(of_layer ? "_norm.weight" : "_vbn.weight", {layer.out}, layer.scale_offset, layer.fan_in(),
      true);
  slices.back().initial = 1;
  add(of_layer ? "_norm.bias" : "_vbn.bias", {layer.out}, layer.shift_offset, layer.fan_in(), true);
}

void AddStatistics(const NetworkDescription& network, size_t index,
                   std::vector<TensorSlice>& slices) {
  const Layer& layer = network.layers[index];
  if (!layer.has_statistics()) return;
  const bool input = layer.kind == Layer::Kind::kNormalize;
  for (const bool mean : {true, false}) {
    const char* name =
        mean ? (input ? ".mean" : "_vbn.running_mean") : (input ? ".std" : "_vbn.running_var");
    TensorSlice& slice = slices.emplace_back(
        Slice(network, index, name, {layer.out}, mean ? layer.mean_offset : layer.spread_offset));
    slice.bias = slice.statistic = true;
    slice.initial = mean ? 0 : 1;
  }
}

// The offset before it takes `count` more.
size_t Take(size_t& offset, int64_t count) {
  return std::exchange(offset, offset + static_cast<size_t>(count));
}

// Places of a layer's parameters from `offset` on, which is advanced.
void Place(Layer& layer, size_t& offset) {
  if (layer.kind == Layer::Kind::kNormalize) return;
  const auto take = [&offset](int64_t count) { return Take(offset, count); };
  const int64_t columns = layer.columns();
  if (layer.kind == Layer::Kind::kDiagonal) {
    layer.weight_count = static_cast<size_t>(layer.out);
    layer.weight_offset = take(layer.out);
    layer.bias_offset = offset;  // of none
    return;
  }
  layer.weight_count = static_cast<size_t>(layer.fan_in() * columns);
  layer.weight_offset = take(layer.fan_in() * columns);
  if (layer.recurrent()) {
    layer.recurrent_count = static_cast<size_t>(layer.out * columns);
    layer.recurrent_offset = take(layer.out * columns);
  }
  layer.bias_offset = take(layer.bias ? columns : 0);
  if (layer.recurrent()) layer.recurrent_bias_offset = take(columns);
  if (!layer.has_scales()) return;
  layer.scale_offset = take(columns);
  layer.shift_offset = take(columns);
}

void PlaceStatistics(Layer& layer, size_t& offset) {
  if (!layer.has_statistics()) return;
  layer.mean_offset = Take(offset, layer.out);
  layer.spread_offset = Take(offset, layer.out);
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
                               " layers is out of range (maps to 4096 x 4096, 1 to " +
                               std::to_string(kLayersMax) + " layers)"};
  }
  const Status too_large(
      Code::kConfig,
      "network " + network.name + " would hold more than 2^31 parameters; use a smaller network");
  size_t offset = 0;
  bool recurrent = false;
  for (Layer& layer : network.layers) {
    if (layer.kind == Layer::Kind::kNormalize) RETURN_IF_ERROR(FinishNormalize(network, layer));
    if (layer.virtual_batch_norm() && recurrent)
      return {Code::kConfig, "network " + network.name + ": layer " + layer.name +
                                 " has virtual batch norm after a recurrent layer, whose state a "
                                 "reference batch lacks; expected it before"};
    recurrent = recurrent || layer.recurrent();
    if (!InRange(layer.out, kUnitsMax)) {
      return {Code::kConfig, "layer " + layer.name + ": " + std::to_string(layer.out) +
                                 " outputs, expected 1 to " + std::to_string(kUnitsMax)};
    }
    if (layer.kind == Layer::Kind::kConv) {
      RETURN_IF_ERROR(FinishConv(previous, layer));
    } else if (layer.kind == Layer::Kind::kResidual) {
      FinishResidual(previous, layer);
    } else {
      FinishDense(previous, layer);
    }
    // fan_in has at most 45 bits, columns 23: compared before they are multiplied
    const int64_t inputs = layer.fan_in() + (layer.recurrent() ? layer.out + 1 : 4);
    if (inputs > kParametersMax / layer.columns() - 1)
      return {Code::kConfig, "network " + network.name + ": layer " + layer.name +
                                 " would hold more than 2^31 parameters; use a smaller network"};
    Place(layer, offset);
    if (offset > static_cast<size_t>(kParametersMax)) return too_large;
    previous = layer;
  }
  network.evolved_count = offset;
  for (Layer& layer : network.layers) PlaceStatistics(layer, offset);
  network.parameter_count = offset;
  return Status::Ok();
}

std::vector<TensorSlice> Tensors(const NetworkDescription& network) {
  std::vector<TensorSlice> slices;
  for (size_t i = 0; i < network.layers.size(); ++i) AddParameters(network, i, slices);
  for (size_t i = 0; i < network.layers.size(); ++i) AddStatistics(network, i, slices);
  return slices;
}

namespace {

Result<NetworkDescription> Hidden(std::string_view name_or_line, int64_t height, int64_t width,
                                  int64_t channels) {
  ASSIGN_OR_RETURN(NamedLayers found, FindLayers(name_or_line));
  const bool image = !found.layers.empty() && (found.layers.front().kind == Layer::Kind::kConv ||
                                               found.layers.front().kind == Layer::Kind::kResidual);
  if (image && height == 1 && width == 1) {
    return Status(Code::kConfig, "network '" + Shown(name_or_line) +
                                     "' needs images, the observations are vectors of " +
                                     std::to_string(channels) + "; use linear or mlp-64-64-tanh");
  }
  NetworkDescription network;
  network.name = std::move(found.name);
  network.height = height;
  network.width = width;
  network.channels = channels;
  network.layers = std::move(found.layers);
  return network;
}

Result<NetworkDescription> WithOutput(std::string_view name_or_line, NetworkDescription network,
                                      int64_t outputs) {
  if (!EndsWithOutput(network.layers)) network.layers.emplace_back().name = kOutputName;
  network.layers.back().out = outputs;
  RETURN_IF_ERROR(Finish(network));
  const Layer& last = network.layers.back();
  if (last.kind == Layer::Kind::kDiagonal && last.in != last.out)
    return Status(Code::kConfig, "network '" + Shown(name_or_line) + "': a diagonal of " +
                                     std::to_string(last.in) + " inputs for " +
                                     std::to_string(last.out) + " outputs, expected as many");
  return network;
}

}  // namespace

Result<NetworkDescription> MakeNetwork(std::string_view name_or_line, int64_t height, int64_t width,
                                       int64_t channels, int64_t outputs) {
  ASSIGN_OR_RETURN(NetworkDescription network, Hidden(name_or_line, height, width, channels));
  for (const Layer& layer : network.layers) {
    const bool residual = layer.kind == Layer::Kind::kResidual;
    if (residual || layer.norm == Norm::kLayer)
      return Status(Code::kConfig, "network '" + Shown(name_or_line) + "': " +
                                       (residual ? "residual stacks are" : "layer_norm is") +
                                       " trained by gradients only; expected conv, dense and "
                                       "recurrent layers" +
                                       (residual ? "" : " without it"));
  }
  return WithOutput(name_or_line, std::move(network), outputs);
}

Result<NetworkDescription> MakeLearnedNetwork(std::string_view name_or_line, int64_t inputs,
                                              int64_t outputs) {
  ASSIGN_OR_RETURN(NetworkDescription network, Hidden(name_or_line, 1, 1, inputs));
  return WithOutput(name_or_line, std::move(network), outputs);
}

Result<NetworkDescription> MakeTorso(std::string_view name_or_line, int64_t height, int64_t width,
                                     int64_t channels) {
  ASSIGN_OR_RETURN(NetworkDescription network, Hidden(name_or_line, height, width, channels));
  for (const Layer& layer : network.layers) {
    if (layer.recurrent() || layer.virtual_batch_norm())
      return Status(Code::kConfig,
                    "network '" + Shown(name_or_line) + "': layer " + layer.name +
                        (layer.recurrent() ? " is for evolution; a learner's recurrent layer is "
                                             "network.lstm=UNITS or network.gru=UNITS"
                                           : " has virtual batch norm, which is for evolution"));
  }
  if (network.layers.empty() || network.layers.back().kind != Layer::Kind::kDense ||
      EndsWithOutput(network.layers))
    return Status(Code::kConfig, "network '" + Shown(name_or_line) +
                                     "': expected a dense layer at its end, which the heads for "
                                     "policy and value read");
  RETURN_IF_ERROR(Finish(network));
  return network;
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

Status SetStorage(Storage storage, NetworkDescription& network) {
  const bool scaled = std::ranges::any_of(
      network.layers, [](const Layer& layer) { return layer.virtual_batch_norm(); });
  if (storage != Storage::kFloat32 && scaled)
    return {Code::kConfig,
            "network.storage=" + std::string(Name(storage)) + ": network " + network.name +
                " has virtual batch norm, which scales its weights; expected float32"};
  network.storage = storage;
  return Status::Ok();
}

Storage StorageOf(const NetworkDescription& network, size_t layer) {
  const bool narrow =
      network.layers[layer].kind != Layer::Kind::kConv && layer + 1 < network.layers.size();
  return network.storage == Storage::kInt8 && !narrow ? Storage::kFloat32 : network.storage;
}

float Int8Scale(float magnitude) {
  const float scale = std::ldexp(1.0f, std::ilogb(std::max(magnitude, 0x1p-100f)) - 6);
  return magnitude > 127 * scale ? 2 * scale : scale;
}

namespace {

void RoundWeights(Storage storage, std::span<float> weights) {
  if (storage == Storage::kBf16) {
    for (float& w : weights) w = RoundToBf16(w);
  } else if (storage == Storage::kInt8) {
    float magnitude = 0;
    for (const float w : weights) magnitude = std::max(magnitude, std::abs(w));
    const float scale = Int8Scale(magnitude);
    for (float& w : weights) w = static_cast<float>(RoundToInt8(w, scale)) * scale;
  }
}

}  // namespace

void RoundToStorage(const NetworkDescription& network, std::span<float> canonical) {
  for (size_t i = 0; i < network.layers.size(); ++i) {
    const Layer& layer = network.layers[i];
    const Storage storage = StorageOf(network, i);
    RoundWeights(storage, canonical.subspan(layer.weight_offset, layer.weight_count));
    if (layer.recurrent())
      RoundWeights(storage, canonical.subspan(layer.recurrent_offset, layer.recurrent_count));
  }
}

}  // namespace samara
