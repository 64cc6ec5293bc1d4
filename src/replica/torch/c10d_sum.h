// Sums of tensors over ranks by c10d's own libraries, in an order of theirs, which is the same on
// every rank: quicker than the fixed tree where fast mode allows it, over Gloo for large tensors
// and, between GPUs, over NCCL without a way through the hosts' memory.
#pragma once

#include <functional>

#include "nn/torch/torch.h"
#include "replica/torch/c10d_group.h"

namespace samara {

class C10dSum {
 public:
  // For tensors on such a device. `group`: Gloo's for the CPU, NCCL's for GPUs.
  C10dSum(C10dGroup group, torch::DeviceType device) : group_(std::move(group)), device_(device) {}
  ~C10dSum();
  C10dSum(const C10dSum&) = delete;
  C10dSum& operator=(const C10dSum&) = delete;

  // Whether this is a tensor for it, by device, type and size: alike on all ranks for alike
  // tensors.
  bool Takes(const torch::Tensor& data) const;
  // In place. All ranks have agreed on what they sum (Communicator::Delegate): sizes are not
  // compared here. `stopped` ends it early. Codes of WaitFor, after which no other sum is possible.
  Status Sum(torch::Tensor data, SteadyTime deadline, const std::function<Status()>& stopped);

 private:
  C10dGroup group_;
  const torch::DeviceType device_;
  bool failed_ = false;
};

}  // namespace samara
