// Collectives of a replicator outside steps, on the values of all replicas.
#include <string>

#include "replica/torch/state.h"
#include "samara/replicator.h"

namespace samara {

Leaves Replicator::ReduceLocals(const std::vector<Leaves>& locals, ReduceOp op,
                                const std::string& structure, Site site) {
  const torch::NoGradGuard none;
  return state_->Reduce(
      locals, op, {std::string("reduce ") + Name(op), DescribeLeaves(locals[0], structure), site});
}

Leaves Replicator::MeanLocals(const std::vector<Leaves>& locals, const std::string& structure,
                              Site site) {
  const torch::NoGradGuard none;
  // the samples are sent as one more leaf
  std::vector<Leaves> weighted;
  for (size_t i = 0; i < locals.size(); ++i) {
    const int64_t samples = state_->samples.at(i);
    Leaves leaves;
    for (const torch::Tensor& leaf : locals[i]) {
      if (!leaf.is_floating_point())
        throw ReplicationError(
            78, "the mean of " + DescribeTensor(leaf) + ": expected floating-point tensors");
      // a mean over no rows is not a number
      leaves.push_back(samples == 0 ? torch::zeros_like(leaf)
                                    : leaf.detach() * static_cast<double>(samples));
    }
    leaves.push_back(torch::tensor(static_cast<double>(samples), torch::kDouble));
    weighted.push_back(std::move(leaves));
  }
  Leaves total = state_->Reduce(weighted, ReduceOp::kSum,
                                {"mean by samples", DescribeLeaves(locals[0], structure), site});
  const double samples = total.back().item<double>();
  total.pop_back();
  for (torch::Tensor& leaf : total) leaf.div_(samples);
  return total;
}

Leaves Replicator::BroadcastMain(const Leaves& in, const std::string& structure, Site site) {
  const torch::NoGradGuard none;
  return state_->Broadcast(std::vector<Leaves>(static_cast<size_t>(local_replicas()), in), 0,
                           {"broadcast from rank 0", DescribeLeaves(in, structure), site});
}

}  // namespace samara
