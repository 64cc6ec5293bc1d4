#include "rl/learner/input_tensors.h"

namespace samara {

using torch::Tensor;

Tensor MakeInputs(const InputLayout& layout, int64_t rows) {
  return torch::zeros({rows, layout.height, layout.width, layout.channels},
                      layout.bytes ? torch::kUInt8 : torch::kFloat32);
}

Tensor StackedPlanes(const InputLayout& layout, const Tensor& planes) {
  const auto pixel = static_cast<int64_t>(layout.pixel_bytes);
  const auto depth = static_cast<int64_t>(layout.depth());
  const int64_t pixels = static_cast<int64_t>(layout.plane_bytes) / pixel;
  const int64_t rows = planes.size(0) / depth;
  const Tensor whole = planes.view({rows, depth, pixels, pixel})
                           .permute({0, 2, 1, 3})
                           .contiguous()
                           .view({rows, pixels * depth * pixel});
  return (layout.bytes ? whole : whole.view(torch::kFloat32))
      .view({rows, layout.height, layout.width, layout.channels});
}

ActionDistribution MakeDistribution(const ActionSpec& action) {
  if (!action.discrete) return ActionDistribution::TanhNormal(action.n);
  return action.sizes.empty() ? ActionDistribution::Categorical(action.n)
                              : ActionDistribution::Multi(action.sizes);
}

}  // namespace samara
