// In place of decode_gpu.cu in builds without CUDA kernels, which have no GPU's stream either.
#include "evo/device/decode_task.h"

namespace samara::gpu {

const char* Run(void*, const device::DecodeTask&) { return "this build has no CUDA kernels"; }

}  // namespace samara::gpu
