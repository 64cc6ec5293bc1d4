// Exact mode: each replica's gradients are folded in the order of the replicas' ids, and ranks sum
// in the fixed tree, so that the bits are those of any number of ranks.
#pragma once

#include <map>
#include <vector>

#include "replica/torch/reducer.h"

namespace samara {

class ExactReducer : public GradientReducer {
 public:
  ExactReducer(ReplicatorState& state, std::vector<torch::Tensor> parameters,
               std::vector<torch::Tensor> buffers, const WrapOptions& options, Update update,
               Site site);

  void ZeroGrad() override;
  // Nothing: gradients are sent in Step.
  std::shared_ptr<void> NoSync() override { return nullptr; }
  void Restored(int64_t updates) override;
  void SwitchReplica(int from, int to) override;

 private:
  // Gradients and buffers of a replica while another one runs.
  struct Parked {
    std::vector<torch::Tensor> gradients, buffers;
  };

  void Start() override;
  void GradientReady(size_t local, size_t parameter) override;
  void GradientWritten(size_t parameter) override;
  void ReduceAndApply(int local, Site site) override;

  // Weighted gradients of the parameters, and the tail, into the bucket's flat memory.
  void Fill(const Bucket& bucket, int64_t samples) const;
  void ResetParked();  // no gradients, and buffers as they are in the module
  void StartFolders();
  // Adds local replica's buckets to the folders, or keeps them until those before it have come.
  void FoldInOrder(int local);
  void Reduce(size_t bucket);

  std::vector<Parked> parked_;  // by local replica
  // several local replicas: the sums of the buckets so far
  std::vector<TreeFolder> folders_;
  int folded_ = 0;                                   // local replicas that the sums hold
  std::map<int, std::vector<torch::Tensor>> early_;  // flat buckets of those that came before
};

}  // namespace samara
