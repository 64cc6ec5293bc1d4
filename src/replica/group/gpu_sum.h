// Sums over ranks of arrays in the memory of their GPUs, without a way through the hosts' memory.
#pragma once

#include <span>

#include "core/status.h"

namespace samara {

class GpuSum {
 public:
  virtual ~GpuSum() = default;
  // sum = the leaves of all ranks, added in the fixed tree (collectives/reduce.h): the bits of a
  // sum on the CPU. `mine`: this rank's leaves, one after the other, as many as on every rank, of
  // sum.size() numbers each. Both are in the memory of this rank's GPU, where the calling thread's
  // stream writes and reads them. A collective, with the codes of Communicator.
  virtual Status Sum(std::span<const float> mine, std::span<float> sum) = 0;
  // No more is summed, on any rank. Without it the links are not taken down, which would wait for
  // ranks that may be gone.
  virtual void Close() = 0;
};

}  // namespace samara
