// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/device/accelerator.h"

#include <utility>

namespace samara {

DeviceBytes& DeviceBytes::operator=(DeviceBytes&& other) noexcept {
  std::swap(owner_, other.owner_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(host_, other.host_);
  return *this;
}

DeviceBytes::~DeviceBytes() {
  if (data_ != nullptr) owner_->Free(data_, host_);
}

Result<std::vector<Device>> Accelerator::Choose(const DeviceChoice& choice, int local_rank) {
  using Kind = DeviceChoice::Kind;
  if (choice.kind == Kind::kCuda && !BuiltForGpus())
    return Gpu(0).status();  // says what is missing
  GpuList found = FindGpus();
  if (choice.kind == Kind::kAuto)
    std::erase_if(found.gpus,
                  [](const samara::Gpu& gpu) { return gpu.capability < kKernelCapabilityMin; });
  return ChooseDevices(choice, found, BuiltForGpus(), local_rank);
}

}  // namespace samara
