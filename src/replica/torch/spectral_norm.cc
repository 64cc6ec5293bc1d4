#include "samara/spectral_norm.h"

#include "nn/torch/torch.h"
#include "samara/error.h"

namespace samara {
namespace {

torch::Tensor Unit(const torch::Tensor& x) { return x / x.norm().clamp_min(1e-12); }

}  // namespace

SpectralNormImpl::SpectralNormImpl(int64_t rows) {
  u = register_buffer("u", Unit(torch::randn({rows})));
}

torch::Tensor SpectralNormImpl::forward(const torch::Tensor& weight) {
  if (weight.dim() < 1 || weight.size(0) != u.size(0)) {
    throw ReplicationError(78, "spectral norm of a weight of another size: expected " +
                                   std::to_string(u.size(0)) + " in dimension 0");
  }
  const torch::Tensor w = weight.reshape({weight.size(0), -1});
  torch::Tensor left, right;
  {
    const torch::NoGradGuard none;
    right = Unit(w.t().mv(u));
    left = is_training() ? Unit(w.mv(right)) : u.clone();
    // the graph holds `left`, so that the buffer may change before the backward pass
    u.copy_(left);
  }
  return weight / left.dot(w.mv(right));
}

}  // namespace samara
