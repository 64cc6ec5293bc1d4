// SPDX-License-Identifier: Apache-2.0 OR MIT
// Devices that compute networks: the value of run.device, and the GPUs of this machine.
//
// Nothing here links CUDA: NVIDIA's driver is loaded where there is one, so that a program without
// CUDA can name the GPUs too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace samara {

// Value of run.device.
struct DeviceChoice {
  enum class Kind : uint8_t { kAuto, kCpu, kCuda };
  Kind kind = Kind::kAuto;
  std::vector<int> ordinals;  // kCuda: of distinct GPUs, in the order given; at least one
};
// Parses "auto", "cpu", "cuda" (the first GPU), "cuda:N" or "cuda:N,cuda:M". kConfig.
Result<DeviceChoice> ParseDevice(std::string_view text);

struct Gpu {
  int ordinal = 0;
  std::string name;
  int capability = 0;  // compute capability times 10: 90 is 9.0
  uint64_t memory_bytes = 0;
};
struct GpuList {
  std::vector<Gpu> gpus;  // by ordinal
  std::string why_none;   // one line where there are none
};
// Asks NVIDIA's driver.
GpuList FindGpus();

// Smallest compute capability for which torch's builds with CUDA 13 have code.
inline constexpr int kCapabilityMin = 75;

// A rank of a run, and its number among those of its host.
struct RankPlace {
  int rank = 0, ranks = 1, local_rank = 0;
};

struct Device {
  bool cuda = false;
  int ordinal = 0;  // of a GPU
  std::string text() const { return cuda ? "cuda:" + std::to_string(ordinal) : "cpu"; }
  bool operator==(const Device&) const = default;
};
// Returns the devices of a run, at least one. `built`: this program has code for GPUs. kAuto is
// the first GPU that can be used or one of its model, which the ranks of a host have in turn,
// otherwise the CPU. kConfig: this build or the GPU's age rules it out; kUnavailable: no driver, or
// no such GPU.
Result<std::vector<Device>> ChooseDevices(const DeviceChoice& choice, const GpuList& found,
                                          bool built, int local_rank = 0);

// Whether it has matrix products of bfloat16 (compute capability 8.0 or newer); false for the CPU.
bool HasBf16Products(const Device& device, const GpuList& found);

// "CPU", or the GPU's own name: devices of one name compute the same bits.
std::string NameOf(const Device& device, const GpuList& found);

}  // namespace samara
