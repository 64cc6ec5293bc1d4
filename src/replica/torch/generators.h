// Torch's generators of random numbers, which a process has once: the CPU's, then that of each GPU.
#pragma once

#include <vector>

#include "nn/torch/torch.h"

namespace samara {

inline std::vector<at::Generator> Generators() {
  std::vector<at::Generator> all{at::detail::getDefaultCPUGenerator()};
  const auto gpus = static_cast<c10::DeviceIndex>(torch::cuda::device_count());
  for (c10::DeviceIndex i = 0; i < gpus; ++i)
    all.push_back(at::globalContext().defaultGenerator({torch::kCUDA, i}));
  return all;
}

inline std::vector<torch::Tensor> GeneratorStates() {
  std::vector<torch::Tensor> states;
  for (const at::Generator& generator : Generators()) states.push_back(generator.get_state());
  return states;
}

// `states`: of GeneratorStates, or none.
inline void SetGeneratorStates(const std::vector<torch::Tensor>& states) {
  std::vector<at::Generator> all = Generators();
  for (size_t i = 0; i < states.size(); ++i) all[i].set_state(states[i]);
}

}  // namespace samara
