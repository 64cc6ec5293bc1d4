// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/fit_parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/check.h"
#include "core/log.h"

namespace samara {
namespace {

// The canonical shape; of a dense layer that reads a map with the map's rows and columns apart.
std::vector<int64_t> ShapeOf(const NetworkDescription& network, const TensorSlice& tensor) {
  const auto layer = std::ranges::find(network.layers, tensor.offset, &Layer::weight_offset);
  if (tensor.bias || layer == network.layers.end() || layer->kind != Layer::Kind::kDense)
    return tensor.shape;
  int64_t rows = network.height, columns = network.width;
  if (layer != network.layers.begin()) {
    const Layer& previous = *std::prev(layer);
    rows = previous.out_height, columns = previous.out_width;
  }
  if (rows * columns == 1) return tensor.shape;
  return {rows, columns, layer->in / (rows * columns), layer->out};
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
    if (!Fits(shape, room))
      return {Code::kConfig,
              fmt::format("{} is {}, {} has {}", tensor.name, fmt::join(shape, " x "),
                          Shown(to.name), fmt::join(room, " x "))};
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
