// The gradients of one optimizer, from every replica's backward pass to one update: gathered into
// flat buckets, weighted by samples, reduced in the fixed tree, tested, clipped, applied.
//
// A bucket's flat memory ends with its tail: the replica's samples, then one number for each
// parameter of the bucket that is 1 where the replica has a gradient. So one reduction brings the
// weighted sum, the weight, and what is to be skipped.
#pragma once

#include "nn/torch/torch.h"
// after the door to torch
#include <torch/csrc/autograd/variable.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "replica/torch/state.h"
#include "samara/replicator.h"

namespace samara {

class GradientReducer : public PerTurn, public std::enable_shared_from_this<GradientReducer> {
 public:
  // Called with the indices of the parameters to be updated, whose gradients are in place.
  using Update = std::function<void(const std::vector<size_t>& parameters)>;

  // Sends replica 0's parameters and buffers to all. Collective, outside steps.
  GradientReducer(ReplicatorState& state, std::vector<torch::Tensor> parameters,
                  std::vector<torch::Tensor> buffers, const WrapOptions& options, Update update,
                  Site site);
  ~GradientReducer() override;
  // After construction: hooks need shared ownership.
  void Start();

  void ZeroGrad();
  // Of local replica `local`, whose gradients are in the parameters. Collective.
  void Step(int local, Site site);
  std::shared_ptr<void> NoSync();
  void Change(int from, int to) override;
  bool sends() const override;

  // ZeRO-1: which rank updates parameter i.
  int owner(size_t i) const { return owner_[i]; }
  const std::vector<torch::Tensor>& parameters() const { return parameters_; }
  const std::vector<torch::Tensor>& buffers() const { return buffers_; }
  ReplicatorState& state() const { return state_; }
  double last_norm() const { return last_norm_; }
  int64_t skipped() const { return skipped_; }
  int64_t updates() const { return updates_; }
  // Parameters, buffers and optimizer were replaced by a checkpoint's.
  void Restored(int64_t updates);
  // What the steps cost so far, in seconds: waiting for reductions that were not hidden, and all.
  double exposed_seconds() const { return exposed_seconds_; }
  // SHA-256 over the parameters in order.
  std::string ParameterHash() const;

 private:
  struct Bucket {
    std::vector<size_t> parameters;  // indices
    std::vector<int64_t> offsets;    // of their gradients in `flat`
    int64_t elements = 0;            // without the tail
    torch::Tensor flat;              // elements, samples, one a parameter
    // fast mode, of several ranks: where the backward pass adds, a tensor for each parameter. Not
    // what is sent: the caller may look at it
    torch::Tensor own;
    std::vector<torch::Tensor> gradients;
    size_t pending = 0;
    uint64_t ticket = 0;  // of its reduction in the background
  };
  // What a gradient was when the backward pass left it: a write since is seen. Writes through
  // .data() pass by the version, so a few values on the CPU belong to it.
  struct Mark {
    Mark() = default;
    explicit Mark(const torch::Tensor& gradient);
    bool operator==(const Mark&) const = default;

    using Impl = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor{Impl()};
    uint32_t version = 0;
    uint64_t values = 0;
  };
  // What a replica has put aside while another one runs.
  struct Aside {
    std::vector<torch::Tensor> gradients, buffers;
  };

  void StartAside();  // no gradients, and buffers as they are in the module
  void MakeBuckets(const std::vector<size_t>& order);
  // Throws when a gradient that the backward pass left, or sent, is no longer what it was.
  void RefuseWritten(int local);
  [[noreturn]] void Written(size_t parameter) const;
  // Local replica's gradients, weighted, and the tail, into `flat`.
  void Fill(const Bucket& bucket, torch::Tensor flat, int64_t samples) const;
  // Adds local replica's buckets to the folders, or keeps them until it is their turn.
  void FoldInOrder(int local);
  void Reduce(Bucket& bucket, std::optional<int64_t> whole_batch, std::span<const Partial> partials,
              Communicator& group);
  void Sum(const Collective& what, const torch::Tensor& data, Communicator& group);
  // Averages a reduced bucket in place; the parameters that have a gradient, appended.
  void Average(Bucket& bucket, std::vector<size_t>& used);
  double Norm(const std::vector<size_t>& used) const;  // of the averaged gradients
  void Warn(const std::string& what) const;            // rank 0 says it
  void WarnWithoutGradient(const std::vector<size_t>& used);
  void Apply();          // all buckets are reduced
  void ApplyByBucket();  // as they come
  void CheckSync(Site site);
  void ShareUpdated(Site site);
  // fast mode
  bool fast() const { return state_.mode() == ReplicationMode::kFast; }
  bool alone() const { return state_.replicas() == 1; }
  torch::Tensor& PlaceOf(size_t parameter);
  void Ready(size_t parameter);
  void Launch(bool all);
  void Reset();
  void Rebuild();

  ReplicatorState& state_;
  const std::weak_ptr<ReplicatorState> still_there_;
  const std::vector<torch::Tensor> parameters_, buffers_;
  const WrapOptions options_;
  const Update update_;
  const Site wrapped_at_;
  std::vector<int> owner_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;
  std::vector<Aside> aside_;
  std::vector<std::vector<Mark>> marks_;  // by local replica and parameter
  std::vector<SteadyTime> backward_;      // since the first gradient of this step, by local replica
  // exact mode with several local replicas: folded in the order of their ids, at once if they come
  // in it
  std::vector<TreeFolder> folders_;                  // of the buckets
  int folded_ = 0;                                   // local replicas whose gradients they have
  std::map<int, std::vector<torch::Tensor>> early_;  // flat buckets of those that came before
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(torch::Tensor()));
  std::vector<Accumulator> accumulators_;  // kept alive: they have our hooks
  // fast mode
  std::vector<bool> has_gradient_;  // from any pass since the last update
  std::vector<bool> ready_;         // from the pass that is sent
  std::vector<size_t> observed_;    // order of the first backward pass
  C10dSum* sum_ = nullptr;          // borrowed; null: the tree's
  bool rebuilt_ = false;
  bool warned_ = false;
  int no_sync_ = 0;
  size_t next_launch_ = 0;
  // results
  double last_norm_ = 0, exposed_seconds_ = 0;
  int64_t skipped_ = 0, skipped_in_a_row_ = 0, updates_ = 0;
};

}  // namespace samara
