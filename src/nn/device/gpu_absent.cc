// SPDX-License-Identifier: Apache-2.0 OR MIT
// In place of gpu.cu in builds without CUDA kernels.
#include "nn/device/accelerator.h"

namespace samara {

bool Accelerator::BuiltForGpus() { return false; }
Result<std::unique_ptr<Accelerator>> Accelerator::Gpu(int) {
  return Status(Code::kConfig,
                "run.device=cuda: this samara was built without CUDA kernels for populations; "
                "expected cpu, or set-up and build with SAMARA_CUDA=1 (doc/accelerators.md)");
}

}  // namespace samara
