#include "replica/torch/c10d_collectives.h"

#include <thread>

namespace samara {
namespace {

constexpr int64_t kGlooBytes = 1 << 19;  // below, our own rounds are as quick (doc/performance.md)

}  // namespace

C10dCollectives::~C10dCollectives() {
  try {
    if (!abandoned_) group_->shutdown();
  } catch (const std::exception&) {
    abandoned_ = true;
  }
  if (abandoned_) group_.release();
}

bool C10dCollectives::Takes(const torch::Tensor& data) const {
  if (data.device().type() != device_ || !data.is_contiguous()) return false;
  if (device_ != torch::kCPU) return true;
  const auto bytes = data.numel() * static_cast<int64_t>(data.element_size());
  return bytes >= kGlooBytes &&
         (data.scalar_type() == torch::kFloat32 || data.scalar_type() == torch::kFloat64);
}

Status C10dCollectives::Sum(torch::Tensor data, SteadyTime deadline,
                            const std::function<Status()>& stopped) {
  const auto start = [&] {
    std::vector<torch::Tensor> tensors{data};
    return group_->allreduce(tensors);
  };
  return Run(start, deadline, stopped);
}

Status C10dCollectives::Gather(torch::Tensor mine, torch::Tensor all, SteadyTime deadline,
                               const std::function<Status()>& stopped) {
  return Run([&] { return group_->_allgather_base(all, mine); }, deadline, stopped);
}

Status C10dCollectives::Run(const Start& start, SteadyTime deadline,
                            const std::function<Status()>& stopped) {
  const Status status = WaitFor(start, deadline, stopped);
  if (status.ok() || abandoned_) return status;
  Abandon();
  // it may wait for other ranks, which are not told before this returns
  std::thread([group = group_] {
    try {
      group->abort();
    } catch (const std::exception&) {  // it is given up anyway
    }
  }).detach();
  return status;
}

}  // namespace samara
