// SPDX-License-Identifier: Apache-2.0 OR MIT
// CUDA's runtime and our kernels as plain functions, so that only gpu.cu needs nvcc and it needs
// nothing of C++20. Each returns null, or what CUDA says of its failure.
#pragma once

#include <stddef.h>

#include "nn/device/tasks.h"

namespace samara::gpu {

struct Properties {
  char name[256];
  int major, minor;
};

// Whether that is why a call failed.
bool IsOutOfMemory(const char* error);

const char* Count(int* count);
const char* Describe(int ordinal, Properties* properties);
const char* Use(int ordinal);  // of the calling thread
const char* Memory(size_t* free, size_t* total);
const char* Allocate(void** data, size_t bytes);
const char* AllocateHost(void** data, size_t bytes);
void Free(void* data);
void FreeHost(void* data);
const char* MakeStream(void** stream);
void DropStream(void* stream);
const char* Copy(void* stream, void* to, const void* from, size_t bytes);
const char* Zero(void* stream, void* to, size_t bytes);
const char* Synchronize(void* stream);
const char* MakeEvent(void** event);
void DropEvent(void* event);
const char* Record(void* stream, void* event);
const char* Elapsed(void* from, void* to, float* milliseconds);

const char* Run(void* stream, const device::PushTask& task);
const char* Run(void* stream, const device::ConvTask& task);
const char* Run(void* stream, const device::DenseTask& task);
const char* Run(void* stream, const device::PlaceTask& task);

}  // namespace samara::gpu
