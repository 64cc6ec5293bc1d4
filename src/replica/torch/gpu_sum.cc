#include "replica/torch/gpu_sum.h"

#include "core/check.h"
#include "nn/torch/torch_device.h"
#include "replica/collectives/reduce.h"
#include "replica/torch/c10d_collectives.h"

namespace samara {
namespace {

// The value of a node of the tree, in place of its first leaf.
torch::Tensor Fold(const torch::Tensor& leaves, TreeNode node) {
  if (node.size() == 1) return leaves[node.begin];
  const uint32_t middle = node.middle();
  return Fold(leaves, {node.begin, middle}).add_(Fold(leaves, {middle, node.end}));
}

// All ranks receive the leaves of all, and add them up by themselves.
class GatheredSum final : public GpuSum {
 public:
  GatheredSum(RankGroup& group, C10dGroup links, torch::Device device)
      : group_(group), collectives_(std::move(links), device.type()), options_(device) {}
  ~GatheredSum() override {
    if (!closed_) collectives_.Abandon();
  }

  Status Sum(std::span<const float> mine, std::span<float> sum) override {
    const torch::NoGradGuard no_gradient;
    const auto numbers = static_cast<int64_t>(sum.size()),
               each = static_cast<int64_t>(mine.size()) / numbers, leaves = each * group_.size();
    if (!leaves_.defined() || leaves_.size(0) != leaves || leaves_.size(1) != numbers)
      leaves_ = torch::empty({leaves, numbers}, options_);
    const torch::Tensor own =
        torch::from_blob(const_cast<float*>(mine.data()), {each, numbers}, options_);
    const Collective what{
        .operation = "gradients",
        .operand = "float32[" + std::to_string(leaves) + ", " + std::to_string(numbers) + "]"};
    const auto gather = [&](SteadyTime deadline) {
      return collectives_.Gather(own, leaves_, deadline,
                                 [&] { return group_.communicator().failure(); });
    };
    RETURN_IF_ERROR(group_.communicator().Delegate(what, leaves_.nbytes(), gather));
    torch::from_blob(sum.data(), {numbers}, options_)
        .copy_(Fold(leaves_, {0, static_cast<uint32_t>(leaves)}));
    return {};
  }
  void Close() override { closed_ = true; }

 private:
  RankGroup& group_;
  C10dCollectives collectives_;
  const torch::TensorOptions options_;
  bool closed_ = false;
  torch::Tensor leaves_;  // of all ranks, in their order; kept for the next sum
};

}  // namespace

Result<std::unique_ptr<GpuSum>> MakeGpuSum(RankGroup& group, C10dGroup links,
                                           const torch::Device& device) {
  auto sum = std::make_unique<GatheredSum>(group, std::move(links), device);
  const torch::Tensor one = torch::ones({1}, device), ranks = torch::zeros({1}, device);
  RETURN_IF_ERROR(sum->Sum({one.data_ptr<float>(), 1}, {ranks.data_ptr<float>(), 1}));
  CHECK_EQ(ranks.item<float>(), static_cast<float>(group.size()));
  return std::unique_ptr<GpuSum>(std::move(sum));
}

Result<std::unique_ptr<GpuSum>> MakeGpuSum(RankGroup& group, const std::shared_ptr<Store>& store,
                                           const Device& device) {
  const torch::Device on = ToTorch(device);
  ASSIGN_OR_RETURN(const auto ids, group.Exchange("GPUs of the ranks", GpuId(on)));
  if (!AllDiffer(ids)) return std::unique_ptr<GpuSum>();
  constexpr std::chrono::minutes kDeadline{10};  // of the start; a sum has the communicator's
  auto sum = [&]() -> Result<std::unique_ptr<GpuSum>> {
    ASSIGN_OR_RETURN(C10dGroup links, MakeNcclGroup(group.rank(), group.size(), store, kDeadline));
    return MakeGpuSum(group, std::move(links), on);
  }();
  if (!sum.ok())
    return Status(sum.status().code(), sum.status().message() +
                                           "; with SAMARA_TRANSPORT=shared, or gloo on several "
                                           "hosts, gradients go through the hosts' memory");
  return sum;
}

}  // namespace samara
