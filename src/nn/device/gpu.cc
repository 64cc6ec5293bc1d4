// SPDX-License-Identifier: Apache-2.0 OR MIT
// GPUs as accelerators; CUDA itself is behind gpu_runtime.h.
#include "nn/device/accelerator.h"
#include "nn/device/gpu_runtime.h"

namespace samara {
namespace {

Status Failed(const std::string& what, const char* error) {
  return {gpu::IsOutOfMemory(error) ? Code::kNoResources : Code::kUnavailable, what + ": " + error};
}

class GpuStream : public DeviceStream {
 public:
  static Result<std::unique_ptr<DeviceStream>> Make(int ordinal) {
    auto stream = std::unique_ptr<GpuStream>(new GpuStream(ordinal));
    const char* error = gpu::MakeStream(&stream->stream_);
    if (error == nullptr) error = gpu::MakeEvent(&stream->events_[0]);
    if (error == nullptr) error = gpu::MakeEvent(&stream->events_[1]);
    if (error != nullptr) return Failed("GPU " + std::to_string(ordinal) + ": no stream", error);
    return std::unique_ptr<DeviceStream>(std::move(stream));
  }
  ~GpuStream() override {
    if (stream_ != nullptr) gpu::DropStream(stream_);
    for (void* event : events_) {
      if (event != nullptr) gpu::DropEvent(event);
    }
  }
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  void Upload(void* device, const void* host, size_t bytes) override {
    Use();
    Keep(gpu::Copy(stream_, device, host, bytes));
  }
  void Download(void* host, const void* device, size_t bytes) override {
    Use();
    Keep(gpu::Copy(stream_, host, device, bytes));
  }
  void Zero(void* device, size_t bytes) override {
    Use();
    Keep(gpu::Zero(stream_, device, bytes));
  }
  void Run(const device::PushTask& task) override { Launch(task); }
  void Run(const device::ConvTask& task) override { Launch(task); }
  void Run(const device::DenseTask& task) override { Launch(task); }
  void Run(const device::PlaceTask& task) override { Launch(task); }
  Status Synchronize() override {
    Keep(gpu::Synchronize(stream_));
    if (error_.empty()) return Status::Ok();
    return Failed("GPU " + std::to_string(ordinal_) + " failed", error_.c_str());
  }
  void Start() override {
    Use();
    Keep(gpu::Record(stream_, events_[0]));
  }
  float Stop() override {
    float milliseconds = 0;
    Keep(gpu::Record(stream_, events_[1]));
    Keep(gpu::Elapsed(events_[0], events_[1], &milliseconds));
    return milliseconds;
  }
  void* native() override {
    Use();
    return stream_;
  }
  void Fail(const char* error) override { Keep(error); }

 private:
  explicit GpuStream(int ordinal) : ordinal_(ordinal) {}
  // Threads begin with GPU 0.
  void Use() { Keep(gpu::Use(ordinal_)); }
  template <typename Task>
  void Launch(const Task& task) {
    Use();
    Keep(gpu::Run(stream_, task));
  }
  void Keep(const char* error) {
    if (error_.empty() && error != nullptr) error_ = error;
  }
  const int ordinal_;
  void* stream_ = nullptr;
  void* events_[2] = {};
  std::string error_;  // the first one
};

class GpuAccelerator : public Accelerator {
 public:
  GpuAccelerator(int ordinal, std::string name) : ordinal_(ordinal), name_(std::move(name)) {}
  std::string name() const override { return name_; }
  bool gpu() const override { return true; }
  Result<DeviceBytes> Allocate(size_t bytes) override { return Take(bytes, false); }
  Result<DeviceBytes> AllocateHost(size_t bytes) override { return Take(bytes, true); }
  Result<std::unique_ptr<DeviceStream>> MakeStream() override {
    if (const char* error = gpu::Use(ordinal_)) return Failed(name_, error);
    return GpuStream::Make(ordinal_);
  }

 private:
  Result<DeviceBytes> Take(size_t bytes, bool host) {
    void* data = nullptr;
    const char* error = gpu::Use(ordinal_);
    if (error == nullptr)
      error = host ? gpu::AllocateHost(&data, bytes) : gpu::Allocate(&data, bytes);
    if (error == nullptr) return DeviceBytes(this, static_cast<std::byte*>(data), bytes, host);
    const std::string wanted = std::to_string(bytes >> 20) + " MB";
    if (host) return Failed("no host memory for copies of " + wanted, error);
    return Failed(name_ + ": no room for " + wanted + " of " + std::to_string(MemoryFree() >> 20) +
                      " MB free",
                  error);
  }
  size_t MemoryFree() const {
    size_t free = 0, total = 0;
    (void)gpu::Use(ordinal_);
    return gpu::Memory(&free, &total) == nullptr ? free : 0;
  }
  void Free(std::byte* data, bool host) override { host ? gpu::FreeHost(data) : gpu::Free(data); }
  const int ordinal_;
  const std::string name_;
};

}  // namespace

bool Accelerator::BuiltForGpus() { return true; }

Result<std::unique_ptr<Accelerator>> Accelerator::Gpu(int ordinal) {
  const std::string which = "run.device=cuda:" + std::to_string(ordinal);
  int count = 0;
  if (const char* error = gpu::Count(&count))
    return Failed(which + ": expected a GPU that CUDA can use, or cpu", error);
  if (ordinal < 0 || ordinal >= count)
    return Status(Code::kUnavailable, which + ": expected a GPU below cuda:" +
                                          std::to_string(count) + ", which are there, or cpu");
  gpu::Properties properties{};
  if (const char* error = gpu::Describe(ordinal, &properties)) return Failed(which, error);
  if (10 * properties.major + properties.minor < kKernelCapabilityMin)
    return Status(Code::kConfig, which + ", " + properties.name + ": compute capability " +
                                     std::to_string(properties.major) + "." +
                                     std::to_string(properties.minor) +
                                     "; expected 8.0 or newer, or cpu");
  if (const char* error = gpu::Use(ordinal)) return Failed(which, error);
  return std::unique_ptr<Accelerator>(
      std::make_unique<GpuAccelerator>(ordinal, std::string(properties.name)));
}

}  // namespace samara
