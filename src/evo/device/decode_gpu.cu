// The decoder on an NVIDIA GPU; compiled as nn/device/gpu.cu is.
#include <cuda_runtime.h>

#include "evo/device/decode_impl.h"

namespace samara {
namespace {

__global__ void DecodeKernel(const device::DecodeTask task) {
  device::GpuBlock block;
  device::DecodeAny(block, task);
}

}  // namespace

namespace gpu {

// Errors are found by the stream's next call.
void Run(void* stream, const device::DecodeTask& task) {
  DecodeKernel<<<device::DecodeBlocks(task), device::kDecodeThreads, 0,
                 static_cast<cudaStream_t>(stream)>>>(task);
}

}  // namespace gpu
}  // namespace samara
