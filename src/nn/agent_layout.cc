// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/agent_layout.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace samara {
namespace {

// suffixes of names; the first that fits counts
constexpr std::pair<std::string_view, std::string_view> kSuffixes[] = {
    {"lstm_input", "lstm.weight_ih"},
    {"lstm_recurrent", "lstm.weight_hh"},
    {"lstm_bias", "lstm.bias_ih"},
    {"gru_input", "gru.weight_ih"},
    {"gru_recurrent", "gru.weight_hh"},
    {"gru_bias", "gru.bias_ih"},
    {"normalize_mean", "normalize.mean"},
    {"normalize_deviation", "normalize.std"},
    {"_weight", ".weight"},
    {"_bias", ".bias"},
};

// A core's two biases of PyTorch, which are one in a learner: their sums, but for the last gates,
// those of both.
struct CoreBiases {
  const char* first;
  const char* second;
  size_t gates, apart;  // apart: gates at the end that are not summed
};
constexpr CoreBiases kCoreBiases[] = {{"lstm.bias_ih", "lstm.bias_hh", 4, 0},
                                      {"gru.bias_ih", "gru.bias_hh", 3, 1}};

// Whether it is a parameter of a user's module.
bool OfModule(std::string_view name) {
  return name.starts_with("torso.") || name.starts_with("value_torso.");
}

std::string Renamed(std::string_view name, bool to_torch) {
  if (OfModule(name)) return std::string(name);
  for (auto [from, to] : kSuffixes) {
    if (!to_torch) std::swap(from, to);
    if (name.ends_with(from))
      return std::string(name.substr(0, name.size() - from.size())) + std::string(to);
  }
  return std::string(name);
}

// The order of the torso's maps: residual stacks before convolutions, each by number.
std::pair<bool, int> MapOrder(std::string_view name) {
  const bool convolution = name.starts_with("conv");
  int number = 0;
  name.remove_prefix(std::min(name.size(), convolution ? sizeof "conv" - 1 : sizeof "stack" - 1));
  std::from_chars(name.data(), name.data() + name.size(), number);
  return {convolution, number};
}

// Channels of the map that the torso's first dense layer reads; 0 = it reads a vector.
int64_t MapChannels(const NamedTensors& tensors) {
  int64_t channels = 0;
  std::pair<bool, int> last;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.shape.size() != 4 || MapOrder(name) < last) continue;
    last = MapOrder(name);
    channels = tensor.shape[0];
  }
  return channels;
}

// Columns [place][channel] as [channel][place], or back.
Result<Tensor> Permuted(const std::string& name, const Tensor& weight, int64_t channels,
                        bool to_torch) {
  if (weight.shape.size() != 2 || weight.shape[1] % channels != 0)
    return Status(Code::kBadData, name + ": expected columns for maps of " +
                                      std::to_string(channels) + " channels");
  const std::vector<float> values = weight.Floats();
  std::vector<float> permuted(values.size());
  const auto columns = static_cast<size_t>(weight.shape[1]);
  const auto depth = static_cast<size_t>(channels), places = columns / depth;
  for (size_t row = 0; row < static_cast<size_t>(weight.shape[0]); ++row) {
    for (size_t p = 0; p < places; ++p) {
      for (size_t c = 0; c < depth; ++c) {
        const size_t here = row * columns + p * depth + c, there = row * columns + c * places + p;
        permuted[to_torch ? there : here] = values[to_torch ? here : there];
      }
    }
  }
  return Tensor::OfFloats(weight.shape, permuted);
}

Result<NamedTensors> Converted(const NamedTensors& tensors, bool to_torch) {
  NamedTensors converted;
  const int64_t channels = MapChannels(tensors);
  const std::string weight = to_torch ? "_weight" : ".weight";
  for (const auto& [name, tensor] : tensors) {
    if (tensor.type != Tensor::Type::kFloat32)
      return Status(Code::kBadData, name + ": expected float32");
    Tensor& to = converted[Renamed(name, to_torch)] = tensor;
    if ((name != "fc" + weight && name != "fc1" + weight) || channels == 0) continue;
    ASSIGN_OR_RETURN(to, Permuted(name, tensor, channels, to_torch));
  }
  return converted;
}

Status CheckBias(const std::string& name, const Tensor& bias, size_t parts) {
  if (bias.shape.size() == 1 && bias.type == Tensor::Type::kFloat32 &&
      static_cast<size_t>(bias.shape[0]) % parts == 0)
    return Status::Ok();
  return {Code::kBadData, name + ": expected " + std::to_string(parts) + " float32 numbers a unit"};
}

Tensor OfVector(const std::vector<float>& values) {
  return Tensor::OfFloats({static_cast<int64_t>(values.size())}, values);
}

// Makes two biases of a learner's one.
Status Split(const CoreBiases& core, NamedTensors& tensors) {
  const auto bias = tensors.find(core.first);
  if (bias == tensors.end()) return Status::Ok();
  RETURN_IF_ERROR(CheckBias(core.first, bias->second, core.gates + core.apart));
  std::vector<float> first = bias->second.Floats();
  const size_t units = first.size() / (core.gates + core.apart);
  std::vector<float> second(core.gates * units);
  std::copy_backward(first.begin() + static_cast<ptrdiff_t>(second.size()), first.end(),
                     second.end());
  first.resize(second.size());
  bias->second = OfVector(first);
  tensors[core.second] = OfVector(second);
  return Status::Ok();
}

// Makes a learner's bias of two.
Status Join(const CoreBiases& core, NamedTensors& tensors) {
  const auto first = tensors.find(core.first), second = tensors.find(core.second);
  if (first == tensors.end() || second == tensors.end()) return Status::Ok();
  if (first->second.shape != second->second.shape || first->second.type != second->second.type)
    return {Code::kBadData,
            std::string(core.second) + ": expected the shape and type of " + core.first};
  RETURN_IF_ERROR(CheckBias(core.first, first->second, core.gates));
  std::vector<float> joined = first->second.Floats();
  const std::vector<float> more = second->second.Floats();
  const size_t summed = joined.size() / core.gates * (core.gates - core.apart);
  for (size_t i = 0; i < summed; ++i) joined[i] += more[i];
  joined.insert(joined.end(), more.begin() + static_cast<ptrdiff_t>(summed), more.end());
  first->second = OfVector(joined);
  tensors.erase(second);
  return Status::Ok();
}

}  // namespace

Result<NamedTensors> AgentToTorch(const NamedTensors& learner) {
  ASSIGN_OR_RETURN(NamedTensors exported, Converted(learner, /*to_torch=*/true));
  for (const CoreBiases& core : kCoreBiases) RETURN_IF_ERROR(Split(core, exported));
  return exported;
}

Result<NamedTensors> AgentFromTorch(const NamedTensors& exported) {
  NamedTensors one_bias = exported;
  for (const CoreBiases& core : kCoreBiases) RETURN_IF_ERROR(Join(core, one_bias));
  return Converted(one_bias, /*to_torch=*/false);
}

}  // namespace samara
