// Collectives of tensors over ranks by c10d's own libraries: over Gloo for large tensors and,
// between GPUs, over NCCL without a way through the hosts' memory. Sums are quicker than the fixed
// tree where fast mode allows their order, which is the libraries' and the same on every rank.
#pragma once

#include <functional>

#include "nn/torch/torch.h"
#include "replica/torch/c10d_group.h"

namespace samara {

class C10dCollectives {
 public:
  // For tensors on such a device. `group`: Gloo's for the CPU, NCCL's for GPUs.
  C10dCollectives(C10dGroup group, torch::DeviceType device)
      : group_(std::move(group)), device_(device) {}
  ~C10dCollectives();
  C10dCollectives(const C10dCollectives&) = delete;
  C10dCollectives& operator=(const C10dCollectives&) = delete;

  // Whether this is a tensor for it, by device, type and size: alike on all ranks for alike
  // tensors.
  bool Takes(const torch::Tensor& data) const;
  // Adds up `data` of all ranks, in place. All ranks have agreed on what they sum
  // (Communicator::Delegate): sizes are not compared here. `stopped` ends it early. Codes of
  // WaitFor, after which no other collective is possible.
  Status Sum(torch::Tensor data, SteadyTime deadline, const std::function<Status()>& stopped);
  // all = `mine` of every rank, in their order; contiguous, as many elements on each. As Sum.
  Status Gather(torch::Tensor mine, torch::Tensor all, SteadyTime deadline,
                const std::function<Status()>& stopped);
  // The group is not ended when this is destroyed: that would wait for ranks that may be gone.
  void Abandon() { abandoned_ = true; }

 private:
  using Start = std::function<c10::intrusive_ptr<c10d::Work>()>;
  Status Run(const Start& start, SteadyTime deadline, const std::function<Status()>& stopped);

  C10dGroup group_;
  const torch::DeviceType device_;
  bool abandoned_ = false;
};

}  // namespace samara
