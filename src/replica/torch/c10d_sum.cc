#include "replica/torch/c10d_sum.h"

#include "core/log.h"

namespace samara {
namespace {

constexpr int64_t kGlooBytes = 1 << 19;  // below, our own rounds are as quick (doc/performance.md)

class GroupSum : public C10dSum {
 public:
  GroupSum(C10dGroup group, torch::DeviceType device, std::string name)
      : group_(std::move(group)), device_(device), name_(std::move(name)) {}
  ~GroupSum() override {
    if (failed_)
      group_.release();
    else
      group_->shutdown();
  }
  const std::string& name() const override { return name_; }
  bool Takes(const torch::Tensor& data) const override {
    if (data.device().type() != device_ || !data.is_contiguous()) return false;
    if (device_ != torch::kCPU) return true;
    const auto bytes = data.numel() * static_cast<int64_t>(data.element_size());
    return bytes >= kGlooBytes &&
           (data.scalar_type() == torch::kFloat32 || data.scalar_type() == torch::kFloat64);
  }
  Status Sum(torch::Tensor data, SteadyTime deadline,
             const std::function<Status()>& stopped) override {
    const Status status = WaitFor(
        [&] {
          std::vector<torch::Tensor> tensors{data};
          return group_->allreduce(tensors);
        },
        deadline, stopped);
    if (!status.ok() && !failed_) {
      failed_ = true;
      try {
        group_->abort();
      } catch (const std::exception&) {  // it is given up anyway
      }
    }
    return status;
  }

 private:
  C10dGroup group_;
  const torch::DeviceType device_;
  const std::string name_;
  bool failed_ = false;
};

}  // namespace

Result<std::unique_ptr<C10dSum>> MakeGlooSum(int rank, int size,
                                             const std::shared_ptr<Store>& store,
                                             const std::string& address,
                                             std::chrono::milliseconds deadline) {
  ASSIGN_OR_RETURN(C10dGroup group, MakeGlooGroup(rank, size, store, address, deadline));
  return std::unique_ptr<C10dSum>(
      std::make_unique<GroupSum>(std::move(group), torch::kCPU, "gloo"));
}

Result<std::unique_ptr<C10dSum>> MakeNcclSum(int rank, int size,
                                             const std::shared_ptr<Store>& store,
                                             std::chrono::milliseconds deadline) {
  ASSIGN_OR_RETURN(C10dGroup group, MakeNcclGroup(rank, size, store, deadline));
  return std::unique_ptr<C10dSum>(
      std::make_unique<GroupSum>(std::move(group), torch::kCUDA, "nccl"));
}

}  // namespace samara
