// Sums of tensors over ranks by c10d's own libraries, in an order of theirs, which is the same on
// every rank: quicker than the fixed tree where fast mode allows it, over Gloo for large tensors
// and, between GPUs, over NCCL without a way through the hosts' memory.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "nn/torch/torch.h"
#include "replica/torch/c10d_group.h"

namespace samara {

class C10dSum {
 public:
  virtual ~C10dSum() = default;
  virtual const std::string& name() const = 0;  // "gloo" or "nccl"
  // Whether this is a tensor for it, by device, type and size: alike on all ranks for alike
  // tensors.
  virtual bool Takes(const torch::Tensor& data) const = 0;
  // In place. All ranks have agreed on what they sum (Communicator::Delegate): sizes are not
  // compared here. `stopped` ends it early. Codes of WaitFor, after which no other sum is possible.
  virtual Status Sum(torch::Tensor data, SteadyTime deadline,
                     const std::function<Status()>& stopped) = 0;
};

Result<std::unique_ptr<C10dSum>> MakeGlooSum(int rank, int size,
                                             const std::shared_ptr<Store>& store,
                                             const std::string& address,
                                             std::chrono::milliseconds deadline);
Result<std::unique_ptr<C10dSum>> MakeNcclSum(int rank, int size,
                                             const std::shared_ptr<Store>& store,
                                             std::chrono::milliseconds deadline);

}  // namespace samara
