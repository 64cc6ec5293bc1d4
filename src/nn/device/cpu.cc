// SPDX-License-Identifier: Apache-2.0 OR MIT
// The kernels on this CPU, a block after the other, on the calling thread: for tests, and for what
// measures the rest of a program without a GPU.
#include <cstdlib>
#include <cstring>

#include "core/clock.h"
#include "nn/device/accelerator.h"
#include "nn/device/launch.h"

namespace samara {
namespace {

class CpuStream : public DeviceStream {
 public:
  void Upload(void* device, const void* host, size_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, bytes);
  }
  void Download(void* host, const void* device, size_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, bytes);
  }
  void Zero(void* device, size_t bytes) override { std::memset(device, 0, bytes); }
  void Run(const device::PushTask& task) override { RunBlocks(task); }
  void Run(const device::ConvTask& task) override { RunBlocks(task); }
  void Run(const device::DenseTask& task) override { RunBlocks(task); }
  void Run(const device::PlaceTask& task) override { RunBlocks(task); }
  Status Synchronize() override { return Status::Ok(); }
  void Start() override { start_ = Now(); }
  float Stop() override { return static_cast<float>(1e3 * SecondsSince(start_)); }
  void* native() override { return nullptr; }
  void Fail(const char*) override {}

 private:
  template <typename Task>
  void RunBlocks(const Task& task) {
    device::Choose(task, [&](auto instance) {
      const device::Grid grid = instance.GridOf(task);
      shared_.resize(grid.shared / sizeof(std::max_align_t) + 1);
      for (unsigned y = 0; y < grid.y; ++y) {
        for (unsigned x = 0; x < grid.x; ++x) {
          device::CpuBlock block(x, y, grid.threads);
          instance.Run(block, task, reinterpret_cast<unsigned char*>(shared_.data()));
        }
      }
    });
  }
  std::vector<std::max_align_t> shared_;
  SteadyTime start_;
};

class CpuAccelerator : public Accelerator {
 public:
  std::string name() const override { return "cpu"; }
  bool gpu() const override { return false; }
  Result<DeviceBytes> Allocate(size_t bytes) override {
    constexpr size_t kAlignment = 256;  // as on a GPU
    void* data = std::aligned_alloc(kAlignment, (bytes + kAlignment) / kAlignment * kAlignment);
    if (data == nullptr)
      return Status(Code::kNoResources, "no memory for " + std::to_string(bytes) + " bytes");
    return DeviceBytes(this, static_cast<std::byte*>(data), bytes, false);
  }
  Result<DeviceBytes> AllocateHost(size_t bytes) override { return Allocate(bytes); }
  Result<std::unique_ptr<DeviceStream>> MakeStream() override {
    return std::unique_ptr<DeviceStream>(std::make_unique<CpuStream>());
  }

 private:
  void Free(std::byte* data, bool) override { std::free(data); }
};

}  // namespace

Result<std::unique_ptr<Accelerator>> Accelerator::Cpu() {
  return std::unique_ptr<Accelerator>(std::make_unique<CpuAccelerator>());
}

}  // namespace samara
