// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/device.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <optional>

#include "core/parse_number.h"

namespace samara {
namespace {

// The number of "cuda:N"; 0 of "cuda".
std::optional<int> OrdinalIn(std::string_view word) {
  constexpr std::string_view kCuda = "cuda";
  if (!word.starts_with(kCuda)) return std::nullopt;
  word.remove_prefix(kCuda.size());
  if (word.empty()) return 0;
  const auto ordinal = ParseNumber<int>(word.substr(1));
  return word[0] == ':' && ordinal >= 0 ? ordinal : std::nullopt;
}

// The functions of NVIDIA's driver (libcuda.so.1) that name GPUs, as its header cuda.h has them.
struct Driver {
  int (*init)(unsigned flags) = nullptr;
  int (*count)(int* count) = nullptr;
  int (*get)(int* device, int ordinal) = nullptr;
  int (*name)(char* name, int size, int device) = nullptr;
  int (*attribute)(int* value, int attribute, int device) = nullptr;
  int (*memory)(size_t* bytes, int device) = nullptr;

  // False: a function is missing.
  bool Load(void* library) {
    const auto load = [library](auto*& function, const char* symbol) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, symbol));
      return function != nullptr;
    };
    return load(init, "cuInit") && load(count, "cuDeviceGetCount") && load(get, "cuDeviceGet") &&
           load(name, "cuDeviceGetName") && load(attribute, "cuDeviceGetAttribute") &&
           load(memory, "cuDeviceTotalMem_v2");
  }
};

constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR

// Nothing where the driver does not answer.
std::optional<Gpu> Describe(const Driver& driver, int ordinal) {
  int device = 0, major = 0, minor = 0;
  size_t bytes = 0;
  std::array<char, 256> name{};
  if (driver.get(&device, ordinal) != 0 ||
      driver.name(name.data(), static_cast<int>(name.size()) - 1, device) != 0 ||
      driver.attribute(&major, kMajor, device) != 0 ||
      driver.attribute(&minor, kMinor, device) != 0 || driver.memory(&bytes, device) != 0)
    return std::nullopt;
  return Gpu{.ordinal = ordinal,
             .name = name.data(),
             .capability = 10 * major + minor,
             .memory_bytes = bytes};
}

std::string Capability(const Gpu& gpu) {
  return std::to_string(gpu.capability / 10) + "." + std::to_string(gpu.capability % 10);
}

bool Usable(const Gpu& gpu) { return gpu.capability >= kCapabilityMin; }

// Whether the GPU `ordinal` can be used.
Status CheckGpu(const GpuList& found, int ordinal) {
  const std::string what = "run.device=cuda:" + std::to_string(ordinal);
  const auto gpu =
      std::ranges::find_if(found.gpus, [&](const Gpu& g) { return g.ordinal == ordinal; });
  if (gpu == found.gpus.end())
    return {Code::kUnavailable,
            what + ": " +
                (found.gpus.empty() ? found.why_none
                                    : "this machine's GPUs end at cuda:" +
                                          std::to_string(found.gpus.back().ordinal)) +
                "; expected a GPU that is there, or cpu"};
  if (!Usable(*gpu))
    return {Code::kConfig, what + ": " + gpu->name + " has compute capability " + Capability(*gpu) +
                               "; expected 7.5 or newer, or run.device=cpu"};
  return Status::Ok();
}

}  // namespace

Result<DeviceChoice> ParseDevice(std::string_view text) {
  using Kind = DeviceChoice::Kind;
  if (text == "auto") return DeviceChoice{Kind::kAuto, {}};
  if (text == "cpu") return DeviceChoice{Kind::kCpu, {}};
  const Status refused(Code::kConfig, "run.device=" + std::string(text) +
                                          ": expected auto, cpu, cuda, cuda:N or cuda:N,cuda:M");
  DeviceChoice choice{Kind::kCuda, {}};
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const auto ordinal = OrdinalIn(text.substr(begin, end - begin));
    if (!ordinal || std::ranges::count(choice.ordinals, *ordinal) > 0) return refused;
    choice.ordinals.push_back(*ordinal);
    begin = end + 1;
  }
  return choice;
}

GpuList FindGpus() {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {{}, "this machine has no NVIDIA driver (libcuda.so.1)"};
  Driver driver;
  if (!driver.Load(library)) return {{}, "this machine's NVIDIA driver is too old"};
  int count = 0;
  if (const int error = driver.init(0); error != 0)
    return {{}, "this machine's NVIDIA driver finds no GPU (error " + std::to_string(error) + ")"};
  GpuList found;
  driver.count(&count);
  for (int ordinal = 0; ordinal < count; ++ordinal)
    if (const auto gpu = Describe(driver, ordinal)) found.gpus.push_back(*gpu);
  if (found.gpus.empty()) found.why_none = "this machine's NVIDIA driver finds no GPU";
  return found;
}

Result<std::vector<Device>> ChooseDevices(const DeviceChoice& choice, const GpuList& found,
                                          bool built, int local_rank) {
  if (choice.kind == DeviceChoice::Kind::kCpu) return std::vector<Device>{{}};
  if (choice.kind == DeviceChoice::Kind::kAuto) {
    const auto first = std::ranges::find_if(found.gpus, Usable);
    if (!built || first == found.gpus.end()) return std::vector<Device>{{}};
    std::vector<Device> alike;  // other models compute other bits
    for (const Gpu& gpu : found.gpus)
      if (gpu.name == first->name) alike.push_back({.cuda = true, .ordinal = gpu.ordinal});
    return std::vector<Device>{alike[static_cast<size_t>(local_rank) % alike.size()]};
  }
  if (!built)
    return Status(Code::kConfig,
                  "run.device=cuda: this samara was built without CUDA; expected cpu, or a build "
                  "with SAMARA_CUDA=1");
  std::vector<Device> devices;
  for (const int ordinal : choice.ordinals) {
    RETURN_IF_ERROR(CheckGpu(found, ordinal));
    devices.push_back({.cuda = true, .ordinal = ordinal});
  }
  return devices;
}

bool HasBf16Products(const Device& device, const GpuList& found) {
  return device.cuda && std::ranges::any_of(found.gpus, [&](const Gpu& gpu) {
           return gpu.ordinal == device.ordinal && gpu.capability >= 80;
         });
}

std::string NameOf(const Device& device, const GpuList& found) {
  if (!device.cuda) return "CPU";
  const auto gpu = std::ranges::find(found.gpus, device.ordinal, &Gpu::ordinal);
  return gpu == found.gpus.end() ? device.text() : gpu->name;
}

}  // namespace samara
