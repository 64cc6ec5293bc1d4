// Modules of TorchScript for tests, as torch.jit.save would write them.
#pragma once

#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "nn/torch/torch.h"

namespace samara {

using ModuleTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// A module with these parameters and buffers, whose forward is `body`, a function of x.
inline torch::jit::Module ModuleOf(const ModuleTensors& parameters, const std::string& body,
                                   const ModuleTensors& buffers = {}) {
  torch::jit::Module module("Torso");
  for (const auto& [name, tensor] : buffers) module.register_buffer(name, tensor.clone());
  for (const auto& [name, tensor] : parameters)
    module.register_parameter(name, tensor.detach().clone().set_requires_grad(true),
                              /*is_buffer=*/false);
  module.define("def forward(self, x):\n    " + body + "\n");
  return module;
}

inline std::shared_ptr<const std::string> FileOf(const torch::jit::Module& module) {
  std::ostringstream out;
  module.save(out);
  return std::make_shared<const std::string>(out.str());
}

// Two dense layers with tanh, as the torso "mlp-N-M-tanh" has them.
inline std::shared_ptr<const std::string> TanhLayers(const ModuleTensors& parameters) {
  return FileOf(ModuleOf(parameters,
                         "x = torch.tanh(torch.linear(x, self.fc1_weight, self.fc1_bias))\n"
                         "    return torch.tanh(torch.linear(x, self.fc2_weight, self.fc2_bias))"));
}

}  // namespace samara
