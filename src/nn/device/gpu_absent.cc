// SPDX-License-Identifier: Apache-2.0 OR MIT
// In place of gpu.cu in builds without CUDA kernels.
#include "nn/device/accelerator.h"

namespace samara {

bool Accelerator::BuiltForGpus() { return false; }
std::vector<std::string> Accelerator::Gpus() { return {}; }
Result<std::unique_ptr<Accelerator>> Accelerator::Gpu(int) {
  return Status(Code::kUnavailable,
                "this build has no CUDA kernels for populations: configure it with "
                "-DSAMARA_CUDA_KERNELS=ON where nvcc is, or take run.device=cpu");
}

}  // namespace samara
