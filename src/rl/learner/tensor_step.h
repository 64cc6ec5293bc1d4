// The arithmetic of rl/learner/optimizer.h on lists of tensors, by few operations of torch for all
// of them: what gradient_step.h is on the CPU, on a device.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/torch/torch.h"
#include "rl/learner/learning_config.h"

namespace samara {

// Lists of one length; tensors of one place have one shape and layout.
struct TensorStep {
  std::vector<torch::Tensor> parameter = {};          // changed
  std::vector<torch::Tensor> mean = {}, square = {};  // as in GradientStep; changed
  std::vector<torch::Tensor> gradient = {};           // multiplied by `scale` first
  double scale = 1;
  double learning_rate = 0;

  void Add(const torch::Tensor& theta, const torch::Tensor& m, const torch::Tensor& v,
           const torch::Tensor& g) {
    parameter.push_back(theta), mean.push_back(m), square.push_back(v), gradient.push_back(g);
  }
};

// One step of the optimizer of config.kind. steps: this one is the steps-th, from 1. REQUIRES: no
// gradient is recorded.
void Apply(const OptimizerConfig& config, const TensorStep& step, uint64_t steps);

double SumOfSquares(const std::vector<torch::Tensor>& tensors);

}  // namespace samara
