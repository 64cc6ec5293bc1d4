// The inverse of the normal distribution function, as torch::special_ndtri computes it on a CPU.
#pragma once

namespace samara {

// The number that a standard normal variable stays below with probability `u`, in (0, 1).
float NormalQuantile(float u);

}  // namespace samara
