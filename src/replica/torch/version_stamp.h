// Whether a tensor is still what it was: autograd's version counter sees writes through the
// tensor, and a few values on the CPU those through .data(), which pass by the counter.
#pragma once

#include <cstdint>

#include "nn/torch/torch.h"

namespace samara {

struct VersionStamp {
  VersionStamp() = default;  // of no tensor
  explicit VersionStamp(const torch::Tensor& of);
  bool operator==(const VersionStamp&) const = default;

  using Impl = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor{Impl()};
  uint32_t version = 0;
  uint64_t values = 0;
};

}  // namespace samara
