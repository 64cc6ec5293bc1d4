// Weights divided by their largest singular value, which a power iteration follows.
#pragma once

#include <torch/torch.h>

namespace samara {

// forward(weight): weight / sigma, the weight seen as a matrix of `rows` = its first dimension. In
// training each call does one iteration: v = W'u / |W'u|, then u = Wv / |Wv|, sigma = u'Wv, with u
// and v constants to the gradient. In eval() u stays as it is. u is a buffer: give the module to
// Wrap, and every replica has its own, with the same bits, since they all start from replica 0's
// and see the same weights. Source: Miyato et al. (2018), algorithm 1.
class SpectralNormImpl : public torch::nn::Module {
 public:
  explicit SpectralNormImpl(int64_t rows);
  torch::Tensor forward(const torch::Tensor& weight);

  torch::Tensor u;  // [rows], of length 1
};
TORCH_MODULE(SpectralNorm);

}  // namespace samara
