// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/fit_parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/check.h"
#include "core/log.h"

namespace samara {
namespace {

// The canonical shape; with rows, columns and channels of a map apart, and with the gates of a
// recurrent layer apart.
std::vector<int64_t> ShapeOf(const NetworkDescription& network, const TensorSlice& tensor) {
  const Layer& layer = network.layers[tensor.layer];
  std::vector<int64_t> shape = tensor.shape;
  if (layer.recurrent()) {
    shape.back() = layer.gates();
    shape.push_back(layer.out);
  }
  const bool reads_input = !tensor.bias && tensor.offset == layer.weight_offset;
  if (!reads_input || layer.kind == Layer::Kind::kConv) return shape;
  int64_t rows = network.height, columns = network.width;
  if (tensor.layer > 0) {
    const Layer& previous = network.layers[tensor.layer - 1];
    rows = previous.out_height, columns = previous.out_width;
  }
  if (rows * columns == 1) return shape;
  shape.front() /= rows * columns;
  shape.insert(shape.begin(), {rows, columns});
  return shape;
}

// Whether `small` is a leading part of `large`.
bool Fits(const std::vector<int64_t>& small, const std::vector<int64_t>& large) {
  return small.size() == large.size() &&
         std::equal(small.begin(), small.end(), large.begin(), std::less_equal<>());
}

void CopyLeading(const std::vector<int64_t>& small, std::span<const float> from,
                 const std::vector<int64_t>& large, std::span<float> to) {
  for (size_t i = 0; i < from.size(); ++i) {
    size_t rest = i, at = 0, stride = 1;
    for (size_t d = small.size(); d-- > 0;) {
      at += rest % static_cast<size_t>(small[d]) * stride;
      rest /= static_cast<size_t>(small[d]);
      stride *= static_cast<size_t>(large[d]);
    }
    to[at] = from[i];
  }
}

}  // namespace

Result<size_t> FitParameters(const NetworkDescription& from, std::span<const float> parameters,
                             const NetworkDescription& to, std::span<float> out) {
  CHECK_EQ(parameters.size(), from.parameter_count);
  CHECK_EQ(out.size(), to.parameter_count);
  const std::vector<TensorSlice> places = Tensors(to);
  const auto fit = [&](const TensorSlice& tensor, bool copy) -> Status {
    const auto place = std::ranges::find(places, tensor.name, &TensorSlice::name);
    const std::vector<int64_t> shape = ShapeOf(from, tensor);
    if (place == places.end())
      return {Code::kConfig, fmt::format("{} ({}) has no place in {}", tensor.name,
                                         fmt::join(shape, " x "), Shown(to.name))};
    const std::vector<int64_t> room = ShapeOf(to, *place);
    const bool alike =
        from.layers[tensor.layer].kind == to.layers[place->layer].kind && Fits(shape, room);
    if (!alike)
      return {Code::kConfig,
              fmt::format("{} is {}, {} has {}", tensor.name, fmt::join(shape, " x "),
                          Shown(to.name), fmt::join(room, " x "))};
    const Layer &given = from.layers[tensor.layer], &taken = to.layers[place->layer];
    const auto name = [](Activation activation) {
      return NameOf(std::span<const EnumName<Activation>>(kActivationNames), activation);
    };
    if (given.activation != taken.activation)
      return {Code::kConfig,
              fmt::format("layer {} has the activation {}, that of {} has {}", given.name,
                          name(given.activation), Shown(to.name), name(taken.activation))};
    if (copy)
      CopyLeading(shape, parameters.subspan(tensor.offset, tensor.count), room,
                  out.subspan(place->offset, place->count));
    return Status::Ok();
  };
  for (const bool copy : {false, true})  // `out` is written only when all fit
    for (const TensorSlice& tensor : Tensors(from)) RETURN_IF_ERROR(fit(tensor, copy));
  return parameters.size();
}

}  // namespace samara
