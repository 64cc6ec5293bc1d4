// SPDX-License-Identifier: Apache-2.0 OR MIT
// A device that runs samara's own kernels: an NVIDIA GPU, or this CPU, which runs the same source
// so that tests need no GPU. Its memory, its streams, and the kernels themselves (tasks.h).
//
// Thread safety: an Accelerator may be called from any thread; a stream from one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "core/status.h"
#include "nn/device/tasks.h"

namespace samara {

class Accelerator;

// Smallest compute capability, times 10, for which there are kernels: reductions over a warp.
inline constexpr int kKernelCapabilityMin = 80;

// Bytes of a device, freed with this object.
class DeviceBytes {
 public:
  DeviceBytes() = default;
  DeviceBytes(Accelerator* owner, std::byte* data, size_t size, bool host)
      : owner_(owner), data_(data), size_(size), host_(host) {}
  DeviceBytes(DeviceBytes&& other) noexcept { *this = std::move(other); }
  DeviceBytes& operator=(DeviceBytes&& other) noexcept;
  ~DeviceBytes();
  std::byte* data() const { return data_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  size_t size() const { return size_; }

 private:
  Accelerator* owner_ = nullptr;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  bool host_ = false;
};

// Does its work in order. The next Synchronize returns what went wrong on the device.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;
  virtual void Upload(void* device, const void* host, size_t bytes) = 0;
  virtual void Download(void* host, const void* device, size_t bytes) = 0;
  virtual void Zero(void* device, size_t bytes) = 0;
  virtual void Run(const device::PushTask& task) = 0;
  virtual void Run(const device::ConvTask& task) = 0;
  virtual void Run(const device::DenseTask& task) = 0;
  virtual void Run(const device::PlaceTask& task) = 0;
  // Waits until everything has been done.
  virtual Status Synchronize() = 0;
  // Milliseconds that the device took for what comes between Start and this call.
  virtual void Start() = 0;
  virtual float Stop() = 0;
  // CUDA's stream for kernels of other folders, on its GPU; null on the CPU.
  virtual void* native() = 0;
  // Error of such a launch; null: it succeeded.
  virtual void Fail(const char* error) = 0;
};

// REQUIRES: it outlives its memory and its streams.
class Accelerator {
 public:
  virtual ~Accelerator() = default;
  // "cpu", or number `ordinal` of the GPUs. kUnavailable: there is none; kConfig: this build has no
  // kernels for it.
  static Result<std::unique_ptr<Accelerator>> Cpu();
  static Result<std::unique_ptr<Accelerator>> Gpu(int ordinal);
  static bool BuiltForGpus();
  // As ChooseDevices (core/device.h), among GPUs for which there are kernels.
  static Result<std::vector<Device>> Choose(const DeviceChoice& choice, int local_rank = 0);

  virtual std::string name() const = 0;
  virtual bool gpu() const = 0;
  // kNoResources: what is wanted and what is free. kUnavailable: the device has failed.
  virtual Result<DeviceBytes> Allocate(size_t bytes) = 0;
  // Memory of the host from which copies are quickest.
  virtual Result<DeviceBytes> AllocateHost(size_t bytes) = 0;
  virtual Result<std::unique_ptr<DeviceStream>> MakeStream() = 0;

 private:
  friend class DeviceBytes;
  virtual void Free(std::byte* data, bool host) = 0;
};

}  // namespace samara
