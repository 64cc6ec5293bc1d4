#include "replica/torch/version_stamp.h"

#include <algorithm>
#include <cstring>

namespace samara {
namespace {

// Hash of a few values spread over the tensor; 0 where they are not in the CPU's memory.
uint64_t SampleHash(const torch::Tensor& tensor) {
  constexpr int64_t kValues = 8;
  if (!tensor.device().is_cpu() || tensor.layout() != torch::kStrided ||
      !tensor.is_non_overlapping_and_dense())
    return 0;
  const auto* bytes = static_cast<const char*>(tensor.const_data_ptr());
  const int64_t size = tensor.element_size(), count = std::min(kValues, tensor.numel());
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes + tensor.numel() * i / count * size,
                std::min(static_cast<size_t>(size), sizeof bits));
    sum = (sum ^ bits) * 0x9E3779B97F4A7C15;
  }
  return sum;
}

}  // namespace

VersionStamp::VersionStamp(const torch::Tensor& of)
    : tensor(of.getIntrusivePtr()), version(of._version()), values(SampleHash(of)) {}

}  // namespace samara
