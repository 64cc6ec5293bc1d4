// Nodes of our own in torch's graph of gradients.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "nn/torch/torch.h"

namespace samara {

// Returns a node as torch holds it: up to 2.11 by shared_ptr, later by intrusive_ptr.
template <typename Node, typename... Arguments>
auto MakeAutogradNode(Arguments&&... arguments) {
  static_assert(std::is_base_of_v<torch::autograd::Node, Node>);
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, torch::autograd::Node>)
    return c10::make_intrusive<Node>(std::forward<Arguments>(arguments)...);
  else
    return std::make_shared<Node>(std::forward<Arguments>(arguments)...);
}

}  // namespace samara
