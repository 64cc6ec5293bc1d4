// Fast mode: a bucket is sent as soon as the backward pass has filled it, while the pass goes on.
// A rank is one replica. After the first step buckets follow the order in which rank 0's backward
// pass reached the parameters.
#pragma once

#include <vector>

#include "replica/torch/reducer.h"

namespace samara {

class OverlappedReducer : public GradientReducer {
 public:
  OverlappedReducer(ReplicatorState& state, std::vector<torch::Tensor> parameters,
                    std::vector<torch::Tensor> buffers, const WrapOptions& options, Update update,
                    Site site);
  ~OverlappedReducer() override;

  void ZeroGrad() override;
  std::shared_ptr<void> NoSync() override;
  bool gradients_sent() const override { return next_launch_ > 0; }

 private:
  // Where the backward pass adds. Not what is sent: the caller may look at it.
  struct Accumulation {
    torch::Tensor buffer;              // undefined for one rank
    std::vector<torch::Tensor> views;  // of it, one a parameter
    size_t pending = 0;                // parameters that the pass has not reached
    uint64_t ticket = 0;               // of the bucket's reduction in the background
  };

  void Start() override;
  void GradientReady(size_t local, size_t parameter) override;
  void GradientWritten(size_t parameter) override;
  void ReduceAndApply(int local, Site site) override;
  void Average(const Bucket& bucket, std::vector<size_t>& used) override;

  void MakeAccumulations();
  torch::Tensor& BucketView(size_t parameter);
  // Sends the next buckets that are ready, or all.
  void Launch(bool all);
  void FillFromAccumulation(size_t bucket);
  void Reduce(const Bucket& bucket, std::optional<int64_t> whole_batch, Communicator& group);
  void Sum(const Collective& what, const torch::Tensor& data, Communicator& group);
  void ApplyByBucket();  // as they arrive
  void Reset();
  void Rebuild();

  const std::weak_ptr<ReplicatorState> live_state_;  // expired: the replicator has ended
  std::vector<Accumulation> accumulations_;          // of the buckets
  std::vector<bool> has_gradient_;                   // from any pass since the last update
  std::vector<bool> ready_;                          // from the pass that is sent
  std::vector<size_t> observed_;                     // order of the first backward pass
  C10dCollectives* sum_ = nullptr;                   // borrowed; null: the tree's
  bool rebuilt_ = false;
  int no_sync_ = 0;
  size_t next_launch_ = 0;
};

}  // namespace samara
