// How a reduction combines two values.
#pragma once

#include <cstdint>

namespace samara {

// kMean: the sum divided by the number of replicas; of floating-point tensors only.
enum class ReduceOp : uint8_t { kSum, kMean, kMin, kMax, kProduct };

}  // namespace samara
