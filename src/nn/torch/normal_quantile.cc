#include "nn/torch/normal_quantile.h"

#include "nn/torch/torch.h"
// after torch.h, which keeps torch's macros out
#include <ATen/native/Math.h>

namespace samara {

float NormalQuantile(float u) { return calc_ndtri(u); }

}  // namespace samara
