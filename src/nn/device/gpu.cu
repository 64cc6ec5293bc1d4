// SPDX-License-Identifier: Apache-2.0 OR MIT
// The kernels on an NVIDIA GPU. Compiled by nvcc as C++17 without contraction (-fmad=false): fused
// operations are written.
#include <cuda_runtime.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "nn/device/gpu_runtime.h"
#include "nn/device/launch.h"

namespace samara {
namespace {

template <typename Instance>
__global__ void Kernel(const typename Instance::Task task) {
  extern __shared__ __align__(16) unsigned char shared[];
  device::GpuBlock block;
  Instance::Run(block, task, shared);
}

// Sets the limit of a kernel to the same value always, since the threads of several streams run it
// with sizes of their own; once for each GPU.
template <typename Instance>
cudaError_t AllowSharedMemory() {
  constexpr int kGpus = 64;
  static std::atomic<bool> allowed[kGpus];
  int gpu = 0;
  if (const cudaError_t error = cudaGetDevice(&gpu); error != cudaSuccess) return error;
  if (gpu < kGpus && allowed[gpu].load(std::memory_order_relaxed)) return cudaSuccess;
  const cudaError_t error =
      cudaFuncSetAttribute(Kernel<Instance>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(device::kSharedMax));
  if (gpu < kGpus && error == cudaSuccess) allowed[gpu].store(true, std::memory_order_relaxed);
  return error;
}

// Names a launch that failed; valid until the thread's next one.
const char* Describe(cudaError_t error, const char* what, const device::Grid& grid) {
  static thread_local char text[256];
  std::snprintf(text, sizeof text, "%s (%s, %u x %u blocks of %u threads, %zu bytes)",
                cudaGetErrorString(error), what, grid.x, grid.y, grid.threads, grid.shared);
  return text;
}

template <typename Task>
const char* RunOn(void* stream, const Task& task) {
  const char* failure = nullptr;
  device::Choose(task, [&](auto instance) {
    using Instance = decltype(instance);
    const device::Grid grid = Instance::GridOf(task);
    if (grid.x == 0 || grid.y == 0) return;
    cudaError_t error = AllowSharedMemory<Instance>();
    if (error == cudaSuccess) {
      Kernel<Instance>
          <<<dim3(grid.x, grid.y), grid.threads, grid.shared, static_cast<cudaStream_t>(stream)>>>(
              task);
      error = cudaGetLastError();
    }
    if (error != cudaSuccess) failure = Describe(error, Instance::kName, grid);
  });
  return failure;
}

const char* Text(cudaError_t error) {
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

// Of a call that makes something: its failure is none of the work that follows.
const char* Made(cudaError_t error) {
  if (error != cudaSuccess) (void)cudaGetLastError();
  return Text(error);
}

}  // namespace

namespace gpu {

const char* Run(void* stream, const device::PushTask& task) { return RunOn(stream, task); }
const char* Run(void* stream, const device::ConvTask& task) { return RunOn(stream, task); }
const char* Run(void* stream, const device::DenseTask& task) { return RunOn(stream, task); }
const char* Run(void* stream, const device::PlaceTask& task) { return RunOn(stream, task); }

bool IsOutOfMemory(const char* error) {
  return std::strcmp(error, cudaGetErrorString(cudaErrorMemoryAllocation)) == 0;
}

const char* Count(int* count) {
  *count = 0;
  return Text(cudaGetDeviceCount(count));
}

const char* Describe(int ordinal, Properties* properties) {
  cudaDeviceProp found;
  if (const char* error = Text(cudaGetDeviceProperties(&found, ordinal))) return error;
  for (int i = 0; i < 256; ++i) properties->name[i] = found.name[i];
  properties->major = found.major;
  properties->minor = found.minor;
  return nullptr;
}
const char* Use(int ordinal) { return Text(cudaSetDevice(ordinal)); }
const char* Memory(size_t* free, size_t* total) { return Text(cudaMemGetInfo(free, total)); }
const char* Allocate(void** data, size_t bytes) { return Made(cudaMalloc(data, bytes)); }
const char* AllocateHost(void** data, size_t bytes) {
  return Made(cudaHostAlloc(data, bytes, cudaHostAllocPortable));
}
void Free(void* data) { (void)cudaFree(data); }
void FreeHost(void* data) { (void)cudaFreeHost(data); }

const char* MakeStream(void** stream) {
  cudaStream_t made = nullptr;
  const char* error = Made(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
  *stream = error == nullptr ? made : nullptr;
  return error;
}
void DropStream(void* stream) { (void)cudaStreamDestroy(static_cast<cudaStream_t>(stream)); }
const char* Copy(void* stream, void* to, const void* from, size_t bytes) {
  return Text(
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)));
}
const char* Zero(void* stream, void* to, size_t bytes) {
  return Text(cudaMemsetAsync(to, 0, bytes, static_cast<cudaStream_t>(stream)));
}
const char* Synchronize(void* stream) {
  return Text(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
}
const char* MakeEvent(void** event) {
  cudaEvent_t made = nullptr;
  const char* error = Made(cudaEventCreate(&made));
  *event = error == nullptr ? made : nullptr;
  return error;
}
void DropEvent(void* event) { (void)cudaEventDestroy(static_cast<cudaEvent_t>(event)); }
const char* Record(void* stream, void* event) {
  return Text(cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)));
}
const char* Elapsed(void* from, void* to, float* milliseconds) {
  const cudaError_t error = cudaEventSynchronize(static_cast<cudaEvent_t>(to));
  if (error != cudaSuccess) return Text(error);
  return Text(cudaEventElapsedTime(milliseconds, static_cast<cudaEvent_t>(from),
                                   static_cast<cudaEvent_t>(to)));
}

}  // namespace gpu
}  // namespace samara
