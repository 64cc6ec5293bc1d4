// The gradients of one optimizer, from every replica's backward pass to one update: gathered into
// flat buckets, weighted by samples, summed over the replicas, tested, clipped, applied.
//
// A bucket's flat memory ends with its tail: the replica's samples, then one number for each
// parameter of the bucket that is 1 where the replica has a gradient. So one reduction returns the
// weighted sum, the weight, and which parameters are to be skipped.
//
// How buckets are summed is the subclasses' difference:
//   ExactReducer       after the backward passes, in the fixed tree (exact_reducer.h)
//   OverlappedReducer  during the backward pass, in the background (overlapped_reducer.h)
// Thread safety: called on the thread of the active replica.
#pragma once

#include "nn/torch/torch.h"
// after the door to torch
#include <torch/csrc/autograd/variable.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "replica/torch/state.h"
#include "replica/torch/version_stamp.h"
#include "samara/replicator.h"

namespace samara {

class GradientReducer : public PerReplicaState,
                        public std::enable_shared_from_this<GradientReducer> {
 public:
  // Called with the indices of the parameters to be updated, whose gradients are in place.
  using Update = std::function<void(const std::vector<size_t>& parameters)>;

  // The reducer of the state's mode. Sends replica 0's parameters and buffers to all. Collective,
  // outside steps. ReplicationError 78 on options or parameters that the mode does not allow.
  static std::shared_ptr<GradientReducer> Make(ReplicatorState& state,
                                               std::vector<torch::Tensor> parameters,
                                               std::vector<torch::Tensor> buffers,
                                               const WrapOptions& options, Update update,
                                               Site site);

  virtual void ZeroGrad() = 0;
  // Step of local replica `local`, whose gradients are in the parameters. Collective.
  void Step(int local, Site site);
  // While it is held, backward passes add gradients and send none.
  virtual std::shared_ptr<void> NoSync() = 0;

  // ZeRO-1: which rank updates parameter i.
  int owner(size_t i) const { return owner_[i]; }
  const std::vector<torch::Tensor>& parameters() const { return parameters_; }
  const std::vector<torch::Tensor>& buffers() const { return buffers_; }
  ReplicatorState& state() const { return state_; }
  double last_norm() const { return last_norm_; }
  int64_t skipped() const { return skipped_; }
  int64_t updates() const { return updates_; }
  // Parameters, buffers and optimizer were replaced by a checkpoint's.
  virtual void Restored(int64_t updates) { updates_ = updates; }
  // Seconds that steps have waited for reductions which the backward pass did not hide.
  double exposed_seconds() const { return exposed_seconds_; }
  // SHA-256 over the parameters in order.
  std::string ParameterHash() const;

 protected:
  struct Bucket {
    std::vector<size_t> parameters;  // indices
    std::vector<int64_t> offsets;    // of their gradients in `flat`
    int64_t elements = 0;            // without the tail
    torch::Tensor flat;              // elements, samples, one a parameter
    int64_t tail_size() const { return 1 + static_cast<int64_t>(parameters.size()); }
    torch::Tensor values() const { return flat.narrow(0, 0, elements); }
    torch::Tensor tail() const { return flat.narrow(0, elements, flat.numel() - elements); }
  };

  GradientReducer(ReplicatorState& state, std::vector<torch::Tensor> parameters,
                  std::vector<torch::Tensor> buffers, const WrapOptions& options, Update update,
                  Site site);

  // After construction: hooks need shared ownership.
  virtual void Start() = 0;
  // Called when the backward pass of local replica `local` has left the gradient of a parameter.
  virtual void GradientReady(size_t local, size_t parameter) = 0;
  // Called for a gradient that is not what the backward pass left: throws, or uses it.
  virtual void GradientWritten(size_t parameter) = 0;
  // Reduces the gradients of all replicas and applies them once.
  virtual void ReduceAndApply(int local, Site site) = 0;

  void AddHooks();  // that call GradientReady
  void MakeBuckets(const std::vector<size_t>& order);
  void SetTail(const Bucket& bucket, int64_t samples,
               const std::function<bool(size_t parameter)>& has_gradient) const;
  Collective Describe(const Bucket& bucket, std::optional<int64_t> whole_batch) const;
  // Sum over the ranks, in the fixed tree.
  void TreeSum(const Collective& what, const torch::Tensor& data, Communicator& group) const;
  // Averages a reduced bucket in place; appends the parameters that have a gradient.
  virtual void Average(const Bucket& bucket, std::vector<size_t>& used);
  double Norm(const std::vector<size_t>& used) const;  // of the averaged gradients
  void WarnWithoutGradient(const std::vector<size_t>& used);
  void Apply();                  // all buckets are reduced
  void ShareUpdated(Site site);  // ZeRO-1: every rank receives what the others have updated
  void CheckSync(Site site);     // compares the parameters' hashes when it is time
  [[noreturn]] void RefuseWritten(size_t parameter) const;
  bool alone() const { return state_.replicas() == 1; }

  // constant after construction
  ReplicatorState& state_;
  const std::vector<torch::Tensor> parameters_, buffers_;
  const WrapOptions options_;
  const Update update_;
  const Site wrapped_at_;

  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;                  // by parameter
  std::vector<std::vector<VersionStamp>> stamps_;  // by local replica and parameter
  double last_norm_ = 0, exposed_seconds_ = 0;
  int64_t updates_ = 0;

 private:
  void Warn(const std::string& what) const;  // logged by rank 0
  // Calls GradientWritten for gradients that the backward pass left otherwise.
  void CheckUnmodified(int local);
  void OnGradient(size_t parameter);  // of the active replica

  std::vector<int> owner_;
  std::vector<SteadyTime> backward_;  // since the first gradient of this step, by local replica
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(torch::Tensor()));
  std::vector<Accumulator> accumulators_;  // kept alive: they have our hooks
  bool warned_ = false;
  int64_t skipped_ = 0, skipped_in_a_row_ = 0;
};

// Whether a gradient has been reset, or is zero throughout, as a module's zero_grad leaves it.
bool IsDropped(const torch::Tensor& gradient);
// ReplicationError 78.
void RequireDense(const torch::Tensor& gradient);

}  // namespace samara
