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

const char* Run(void* stream, const device::DecodeTask& task) {
  DecodeKernel<<<device::DecodeBlocks(task), device::kDecodeThreads, 0,
                 static_cast<cudaStream_t>(stream)>>>(task);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace gpu
}  // namespace samara
