#include "rl/learner/parameter_blocks.h"

#include <cmath>

#include "core/check.h"
#include "core/rng.h"

namespace samara {
namespace {

// A layer's two tensors.
struct Names {
  std::string weight, bias;
};

Names NamesOf(const std::string& name, const std::string& head, const TensorSlice& slice,
              const std::string& suffix) {
  const std::string layer = slice.output_layer ? head : slice.name.substr(0, slice.name.find('.'));
  return {name + layer + "_weight" + suffix, name + layer + "_bias" + suffix};
}

// Shape of a layer's weights in a file: [out][in], or [out][in][rows][columns], from the canonical
// [in][out], or [rows][columns][in][out].
std::vector<int64_t> FileShape(const std::vector<int64_t>& canonical) {
  if (canonical.size() == 2) return {canonical[1], canonical[0]};
  return {canonical[3], canonical[2], canonical[0], canonical[1]};
}

// Calls copy(canonical, file) for the place of each of a layer's weights in both orders.
template <typename Copy>
void ForEachWeight(const std::vector<int64_t>& canonical, const Copy& copy) {
  const size_t dimensions = canonical.size();
  const auto out = static_cast<size_t>(canonical[dimensions - 1]);
  const auto in = static_cast<size_t>(canonical[dimensions - 2]);
  const size_t places =
      dimensions == 2 ? 1 : static_cast<size_t>(canonical[0]) * static_cast<size_t>(canonical[1]);
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

void ParameterBlocks::Initialize(uint64_t seed, std::span<float> parameters) const {
  CHECK_EQ(parameters.size(), size_);
  for (size_t b = 0; b < blocks_.size(); ++b) {
    const Block& block = blocks_[b];
    if (!block.net) continue;
    std::vector<float> canonical(block.net->network().parameter_count);
    const CounterRng rng(DeriveKey(seed, Purpose::kNetworkInit, b));
    for (const TensorSlice& slice : samara::Tensors(block.net->network())) {
      if (slice.bias) continue;
      const double limit = std::sqrt(6.0 / static_cast<double>(slice.fan_in + slice.fan_out));
      for (size_t i = slice.offset; i < slice.offset + slice.count; ++i)
        canonical[i] = static_cast<float>(limit * (2 * rng.Uniform(i) - 1));
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
      const Names names = NamesOf(block.name, block.head, slice, suffix);
      const auto values = std::span(canonical).subspan(slice.offset, slice.count);
      if (slice.bias) {
        tensors[names.bias] = Tensor::OfFloats(slice.shape, values);
        continue;
      }
      std::vector<float> weights(values.size());
      ForEachWeight(slice.shape, [&](size_t at, size_t in_file) { weights[in_file] = values[at]; });
      tensors[names.weight] = Tensor::OfFloats(FileShape(slice.shape), weights);
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
      const Names names = NamesOf(block.name, block.head, slice, suffix);
      float* to = canonical.data() + slice.offset;
      if (slice.bias) {
        ASSIGN_OR_RETURN(const std::vector<float> bias, find(names.bias, slice.shape));
        std::ranges::copy(bias, to);
        continue;
      }
      ASSIGN_OR_RETURN(const std::vector<float> weights,
                       find(names.weight, FileShape(slice.shape)));
      ForEachWeight(slice.shape, [&](size_t at, size_t in_file) { to[at] = weights[in_file]; });
    }
    block.net->FromCanonical(canonical, mine);
  }
  std::ranges::copy(read, parameters.begin());
  return Status::Ok();
}

}  // namespace samara
