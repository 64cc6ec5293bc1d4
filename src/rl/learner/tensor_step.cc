#include "rl/learner/tensor_step.h"

#include <cmath>

namespace samara {
namespace {

using torch::Tensor;
using List = std::vector<Tensor>;

// to <- decay to + (1 - decay) x y
void Follow(const List& to, double decay, const List& x, const List& y) {
  at::_foreach_mul_(to, decay);
  at::_foreach_addcmul_(to, x, y, 1 - decay);
}

// RMSProp, of either kind.
void RmsPropStep(const OptimizerConfig& config, const TensorStep& step, const List& gradient) {
  Follow(step.square, config.decay, gradient, gradient);
  const bool inside = config.kind == OptimizerKind::kRmsprop;
  List below = inside ? at::_foreach_add(step.square, config.epsilon) : step.square;
  below = at::_foreach_sqrt(below);
  if (!inside) at::_foreach_add_(below, config.epsilon);
  at::_foreach_addcdiv_(step.parameter, gradient, below, -step.learning_rate);
}

// Adam, of either kind.
void AdamStep(const OptimizerConfig& config, const TensorStep& step, const List& gradient,
              uint64_t steps) {
  at::_foreach_mul_(step.mean, config.beta1);
  at::_foreach_add_(step.mean, gradient, 1 - config.beta1);
  Follow(step.square, config.beta2, gradient, gradient);
  const auto t = static_cast<double>(steps);
  const double bias1 = 1 - std::pow(config.beta1, t);
  const double root2 = std::sqrt(1 - std::pow(config.beta2, t));
  const bool torchs = config.kind == OptimizerKind::kAdamTorch;
  List below = at::_foreach_sqrt(step.square);
  if (torchs) at::_foreach_div_(below, root2);
  at::_foreach_add_(below, config.epsilon);
  at::_foreach_addcdiv_(step.parameter, step.mean, below,
                        -step.learning_rate * (torchs ? 1 : root2) / bias1);
}

}  // namespace

void Apply(const OptimizerConfig& config, const TensorStep& step, uint64_t steps) {
  if (step.parameter.empty()) return;
  const List gradient =
      step.scale == 1 ? step.gradient : at::_foreach_mul(step.gradient, step.scale);
  if (config.rmsprop())
    RmsPropStep(config, step, gradient);
  else
    AdamStep(config, step, gradient, steps);
}

double SumOfSquares(const List& tensors) {
  if (tensors.empty()) return 0;
  const List norms = at::_foreach_norm(tensors);
  return torch::stack(norms).to(torch::kFloat64).square().sum().item<double>();
}

}  // namespace samara
