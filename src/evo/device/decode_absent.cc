// In place of decode_gpu.cu in builds without CUDA kernels, which have no GPU's stream either.
#include "core/check.h"
#include "evo/device/decode_task.h"

namespace samara::gpu {

void Run(void*, const device::DecodeTask&) { CHECK(false) << "no CUDA kernels in this build"; }

}  // namespace samara::gpu
