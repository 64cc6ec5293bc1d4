#include "rl/learner/parameter_blocks.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "core/check.h"
#include "core/rng.h"

namespace samara {
namespace {

std::string LayerOf(const TensorSlice& slice) { return slice.name.substr(0, slice.name.find('.')); }

void SetGlorot(const TensorSlice& slice, const CounterRng& rng, std::span<float> weights) {
  const double limit = std::sqrt(6.0 / static_cast<double>(slice.fan_in + slice.fan_out));
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] = static_cast<float>(limit * (2 * rng.Uniform(slice.offset + i) - 1));
}

// Draws beyond two of their deviations are drawn anew.
void SetLecunNormal(const TensorSlice& slice, const CounterRng& rng, std::span<float> weights) {
  constexpr double kDeviationWhenCut = 0.87962566103423978;  // of a standard normal
  const double deviation = std::sqrt(1 / static_cast<double>(slice.fan_in)) / kDeviationWhenCut;
  for (size_t i = 0; i < weights.size(); ++i) {
    double drawn = 3;
    for (uint64_t again = 0; std::abs(drawn) > 2; ++again)
      drawn = rng.Normal(slice.offset + i + (again << 40));
    weights[i] = static_cast<float>(deviation * drawn);
  }
}

// Rows of normal draws, [in][out] or with these turned where there are more outputs than inputs,
// each less its parts along those before it (the modified method of Gram and Schmidt).
void SetOrthogonal(const TensorSlice& slice, const CounterRng& rng, double gain,
                   std::span<float> weights) {
  const auto out = static_cast<size_t>(slice.shape.back());
  const size_t in = weights.size() / out, n = std::min(in, out), length = std::max(in, out);
  std::vector<std::vector<double>> rows;
  while (rows.size() < n) {
    std::vector<double> row(length);
    for (size_t k = 0; k < length; ++k)
      row[k] = rng.Normal(slice.offset + rows.size() * length + k);
    for (const std::vector<double>& before : rows) {
      const double along = std::inner_product(row.begin(), row.end(), before.begin(), 0.0);
      for (size_t k = 0; k < length; ++k) row[k] -= along * before[k];
    }
    const double norm = std::sqrt(std::inner_product(row.begin(), row.end(), row.begin(), 0.0));
    for (double& value : row) value /= norm;
    rows.push_back(std::move(row));
  }
  for (size_t i = 0; i < in; ++i)
    for (size_t o = 0; o < out; ++o)
      weights[i * out + o] = static_cast<float>(gain * (in < out ? rows[i][o] : rows[o][i]));
}

// "fc1.weight" -> "critic1_fc1_weight", of the output layer "critic1_value_weight".
std::string TensorName(const std::string& name, const std::string& head, const TensorSlice& slice,
                       const std::string& suffix) {
  const std::string layer = LayerOf(slice);
  return name + (slice.output_layer ? head : layer) + "_" + slice.name.substr(layer.size() + 1) +
         suffix;
}

// Shape of a layer's weights in a file: [out][in], or [out][in][rows][columns], from the canonical
// [in][out], or [rows][columns][in][out]. That of biases, scales and shifts is the same.
std::vector<int64_t> FileShape(const std::vector<int64_t>& canonical) {
  if (canonical.size() == 1) return canonical;
  if (canonical.size() == 2) return {canonical[1], canonical[0]};
  return {canonical[3], canonical[2], canonical[0], canonical[1]};
}

// Calls copy(canonical, file) for the place of each of a layer's weights in both orders.
template <typename Copy>
void ForEachWeight(const std::vector<int64_t>& canonical, const Copy& copy) {
  const size_t dimensions = canonical.size();
  const auto out = static_cast<size_t>(canonical[dimensions - 1]);
  const auto in = dimensions == 1 ? size_t{1} : static_cast<size_t>(canonical[dimensions - 2]);
  const size_t places =
      dimensions < 4 ? 1 : static_cast<size_t>(canonical[0]) * static_cast<size_t>(canonical[1]);
  for (size_t o = 0; o < out; ++o)
    for (size_t i = 0; i < in; ++i)
      for (size_t place = 0; place < places; ++place)
        copy((place * in + i) * out + o, (o * in + i) * places + place);
}

}  // namespace

size_t ParameterBlocks::Add(const std::string& name, const std::string& head,
                            std::shared_ptr<const PaddedLayers> net) {
  blocks_.push_back({name, head, std::move(net), size_});
  size_ += blocks_.back().size();
  return blocks_.back().offset;
}

size_t ParameterBlocks::AddNumber(const std::string& name) { return Add(name, "", nullptr); }

void ParameterBlocks::Initialize(uint64_t seed, Initializer initializer,
                                 std::span<float> parameters) const {
  CHECK_EQ(parameters.size(), size_);
  for (size_t b = 0; b < blocks_.size(); ++b) {
    const Block& block = blocks_[b];
    if (!block.net) continue;
    std::vector<float> canonical(block.net->network().parameter_count);
    const CounterRng rng(DeriveKey(seed, Purpose::kNetworkInit, b));
    for (const TensorSlice& slice : samara::Tensors(block.net->network())) {
      const auto weights = std::span(canonical).subspan(slice.offset, slice.count);
      if (slice.bias) {
        std::ranges::fill(weights, slice.initial);
        continue;
      }
      const bool head = slice.output_layer && LayerOf(slice) != block.head;
      switch (initializer) {
        case Initializer::kGlorot:
          SetGlorot(slice, rng, weights);
          break;
        case Initializer::kOrthogonal:
          SetOrthogonal(slice, rng,
                        !head                    ? std::numbers::sqrt2
                        : block.head == "policy" ? 0.01
                                                 : 1,
                        weights);
          break;
        case Initializer::kLecunNormal:
          SetLecunNormal(slice, rng, weights);
          break;
      }
    }
    block.net->FromCanonical(canonical, parameters.subspan(block.offset, block.size()));
  }
}

std::map<std::string, Tensor> ParameterBlocks::Tensors(std::span<const float> parameters,
                                                       const std::string& suffix) const {
  CHECK_EQ(parameters.size(), size_);
  std::map<std::string, Tensor> tensors;
  for (const Block& block : blocks_) {
    const auto mine = parameters.subspan(block.offset, block.size());
    if (!block.net) {
      tensors[block.name + suffix] = Tensor::OfFloats({}, mine);
      continue;
    }
    const std::vector<float> canonical = block.net->Canonical(mine);
    for (const TensorSlice& slice : samara::Tensors(block.net->network())) {
      const auto values = std::span(canonical).subspan(slice.offset, slice.count);
      std::vector<float> filed(values.size());
      ForEachWeight(slice.shape, [&](size_t at, size_t in_file) { filed[in_file] = values[at]; });
      tensors[TensorName(block.name, block.head, slice, suffix)] =
          Tensor::OfFloats(FileShape(slice.shape), filed);
    }
  }
  return tensors;
}

Status ParameterBlocks::FromTensors(const std::map<std::string, Tensor>& tensors,
                                    std::span<float> parameters, const std::string& suffix) const {
  CHECK_EQ(parameters.size(), size_);
  std::vector<float> read(size_);
  const auto find = [&](const std::string& name,
                        const std::vector<int64_t>& shape) -> Result<std::vector<float>> {
    const auto found = tensors.find(name);
    if (found == tensors.end() || found->second.shape != shape ||
        found->second.type != Tensor::Type::kFloat32)
      return Status(Code::kBadData,
                    name + " is missing or has another shape than this run's network");
    return found->second.Floats();
  };
  for (const Block& block : blocks_) {
    const auto mine = std::span(read).subspan(block.offset, block.size());
    if (!block.net) {
      ASSIGN_OR_RETURN(const std::vector<float> number, find(block.name + suffix, {}));
      mine[0] = number[0];
      continue;
    }
    std::vector<float> canonical(block.net->network().parameter_count);
    for (const TensorSlice& slice : samara::Tensors(block.net->network())) {
      ASSIGN_OR_RETURN(
          const std::vector<float> filed,
          find(TensorName(block.name, block.head, slice, suffix), FileShape(slice.shape)));
      float* to = canonical.data() + slice.offset;
      ForEachWeight(slice.shape, [&](size_t at, size_t in_file) { to[at] = filed[in_file]; });
    }
    block.net->FromCanonical(canonical, mine);
  }
  std::ranges::copy(read, parameters.begin());
  return Status::Ok();
}

}  // namespace samara
