// Scalars that were computed by hand, and one with its derivatives.
#pragma once

#include <utility>

#include "nn/torch/autograd_node.h"

namespace samara {

// In single precision: infinite beyond its range, where torch::full throws.
inline torch::Tensor SingleScalar(double value) {
  return torch::full({}, static_cast<float>(value), torch::kFloat32);
}

// `value` with these derivatives by `inputs`, of their shapes.
inline torch::Tensor WithGradient(double value, const torch::autograd::variable_list& inputs,
                                  torch::autograd::variable_list gradients) {
  struct Given : torch::autograd::Node {
    torch::autograd::variable_list apply(torch::autograd::variable_list&& by_value) override {
      torch::autograd::variable_list out;
      for (const torch::Tensor& gradient : gradients) out.push_back(gradient * by_value[0]);
      return out;
    }
    torch::autograd::variable_list gradients;
  };
  torch::Tensor scalar = SingleScalar(value);
  if (!torch::GradMode::is_enabled()) return scalar;
  const auto node = MakeAutogradNode<Given>();
  node->gradients = std::move(gradients);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  torch::autograd::create_gradient_edge(scalar, node);
  return scalar;
}

}  // namespace samara
