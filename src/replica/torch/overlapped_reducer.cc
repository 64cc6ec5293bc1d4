#include "replica/torch/overlapped_reducer.h"

#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace samara {
namespace {

// The stream of the work that this thread has asked a GPU to do with the tensor; none on the CPU.
std::optional<c10::Stream> StreamOf(const torch::Tensor& tensor) {
  if (tensor.device().is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
}

}  // namespace

OverlappedReducer::OverlappedReducer(ReplicatorState& state, std::vector<torch::Tensor> parameters,
                                     std::vector<torch::Tensor> buffers, const WrapOptions& options,
                                     Update update, Site site)
    : GradientReducer(state, std::move(parameters), std::move(buffers), options, std::move(update),
                      site),
      live_state_(state.weak_from_this()),
      has_gradient_(parameters_.size()),
      ready_(parameters_.size()) {
  MakeAccumulations();
}

OverlappedReducer::~OverlappedReducer() {
  const auto state = live_state_.lock();  // its end has dropped what was queued
  if (next_launch_ == 0 || !state) return;
  try {
    state->background().Drain();  // reductions use members of this object
  } catch (...) {
    // the group keeps the failure for its next collective
  }
}

void OverlappedReducer::Start() {
  sum_ = state_.SumFor(parameters_[0].device(), wrapped_at_);
  AddHooks();
  Reset();
}

void OverlappedReducer::MakeAccumulations() {
  accumulations_.assign(buckets_.size(), {});
  if (alone()) return;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    Accumulation& accumulation = accumulations_[b];
    accumulation.buffer = torch::zeros({bucket.elements}, bucket.flat.options());
    for (size_t j = 0; j < bucket.parameters.size(); ++j) {
      const torch::Tensor& p = parameters_[bucket.parameters[j]];
      // variable_data: each counts its own versions
      accumulation.views.push_back(accumulation.buffer.narrow(0, bucket.offsets[j], p.numel())
                                       .view(p.sizes())
                                       .variable_data());
    }
  }
}

torch::Tensor& OverlappedReducer::BucketView(size_t i) {
  const std::vector<size_t>& parameters = buckets_[bucket_of_[i]].parameters;
  const auto j = std::find(parameters.begin(), parameters.end(), i) - parameters.begin();
  return accumulations_[bucket_of_[i]].views[static_cast<size_t>(j)];
}

void OverlappedReducer::Reset() {
  next_launch_ = 0;
  std::fill(has_gradient_.begin(), has_gradient_.end(), false);
  std::fill(ready_.begin(), ready_.end(), false);
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    Accumulation& accumulation = accumulations_[b];
    accumulation.pending = bucket.parameters.size();
    if (!alone()) accumulation.buffer.zero_();
    for (size_t j = 0; j < bucket.parameters.size(); ++j) {
      const size_t i = bucket.parameters[j];
      torch::Tensor& gradient = parameters_[i].mutable_grad();
      gradient = alone() ? torch::Tensor() : accumulation.views[j];
      if (!alone()) stamps_[0][i] = VersionStamp(gradient);
    }
  }
}

void OverlappedReducer::ZeroGrad() {
  if (next_launch_ > 0)
    throw ReplicationError(78,
                           "zero_grad between the backward pass, whose gradients are sent, and the "
                           "optimizer's step: hold NoSync() during a pass whose gradients are to "
                           "be dropped");
  if (std::find(has_gradient_.begin(), has_gradient_.end(), true) == has_gradient_.end())
    return;  // Step has left zeros
  observed_.clear();
  Reset();
}

std::shared_ptr<void> OverlappedReducer::NoSync() {
  ++no_sync_;
  return {nullptr, [this, alive = shared_from_this()](void*) { --no_sync_; }};
}

void OverlappedReducer::GradientReady(size_t local, size_t i) {
  if (!alone()) {
    torch::Tensor& view = BucketView(i);
    const torch::Tensor& gradient = parameters_[i].grad();
    if (gradient.data_ptr() != view.data_ptr()) {
      // the gradient was reset: torch made a new one
      const torch::NoGradGuard none;
      view.copy_(gradient.detach());
      parameters_[i].mutable_grad() = view;
    }
    stamps_[local][i] = VersionStamp(view);
  }
  if (bucket_of_[i] < next_launch_ || (no_sync_ == 0 && ready_[i]))
    throw ReplicationError(78,
                           "a second backward pass before the optimizer's step: hold NoSync() "
                           "during all but the last one");
  has_gradient_[i] = true;
  if (no_sync_ > 0) return;
  ready_[i] = true;
  if (!rebuilt_) observed_.push_back(i);
  --accumulations_[bucket_of_[i]].pending;
  if (options_.overlap) Launch(false);
}

void OverlappedReducer::GradientWritten(size_t i) {
  if (bucket_of_[i] < next_launch_) RefuseWritten(i);  // sent: dropping it is too late too
  const torch::Tensor& gradient = parameters_[i].grad();
  const bool dropped = IsDropped(gradient);
  if (!dropped && has_gradient_[i]) RefuseWritten(i);
  // zeros are what a module's zero_grad leaves; anything else was made by hand
  torch::Tensor& view = BucketView(i);
  if (dropped) {
    view.zero_();
    has_gradient_[i] = has_gradient_[i] && gradient.defined();
  } else {
    if (gradient.data_ptr() != view.data_ptr()) view.copy_(gradient);
    has_gradient_[i] = true;
  }
}

void OverlappedReducer::FillFromAccumulation(size_t b) {
  const Bucket& bucket = buckets_[b];
  const int64_t samples = state_.samples[0];
  torch::Tensor values = bucket.values();
  if (samples == 0)
    values.zero_();
  else
    torch::mul_out(values, accumulations_[b].buffer,
                   torch::scalar_tensor(samples, values.options().device(torch::kCPU)));
  SetTail(bucket, samples, [&](size_t i) { return samples > 0 && has_gradient_[i]; });
}

void OverlappedReducer::Launch(bool all) {
  const torch::NoGradGuard none;
  // strictly in the order of the buckets, which is the same on all ranks
  while (next_launch_ < buckets_.size() && (all || accumulations_[next_launch_].pending == 0)) {
    const size_t b = next_launch_++;
    if (alone()) continue;  // nothing is sent: Step uses the gradients that are there then
    FillFromAccumulation(b);
    accumulations_[b].ticket = state_.background().Post(
        [this, b, stream = StreamOf(buckets_[b].flat), whole_batch = state_.whole_batch] {
          const torch::NoGradGuard off;
          const c10::OptionalStreamGuard after(stream);  // of what filled the bucket
          Reduce(buckets_[b], whole_batch, state_.background_communicator());
        });
  }
}

void OverlappedReducer::Reduce(const Bucket& bucket, std::optional<int64_t> whole_batch,
                               Communicator& group) {
  const Collective what = Describe(bucket, whole_batch);
  if (!options_.bf16 || bucket.flat.scalar_type() != torch::kFloat32 || state_.world_size() == 1)
    return Sum(what, bucket.flat, group);
  // the tail's counts stay exact
  const torch::Tensor narrow = bucket.values().to(torch::kBFloat16);
  Sum(what, narrow, group);
  Sum(what, bucket.tail(), group);
  bucket.values().copy_(narrow);
}

void OverlappedReducer::Sum(const Collective& what, const torch::Tensor& data,
                            Communicator& group) {
  if (sum_ == nullptr || !sum_->Takes(data)) return TreeSum(what, data, group);
  const auto run = [&](SteadyTime deadline) {
    return sum_->Sum(data, deadline, [&] { return group.failure(); });
  };
  ThrowReplication(group.Delegate(what, data.nbytes(), run));
}

void OverlappedReducer::Average(const Bucket& bucket, std::vector<size_t>& used) {
  if (!alone()) return GradientReducer::Average(bucket, used);
  // of one replica: what the backward pass has left
  for (const size_t i : bucket.parameters) {
    torch::Tensor& gradient = parameters_[i].mutable_grad();
    if (state_.samples[0] == 0) gradient.reset();
    if (!gradient.defined()) continue;
    RequireDense(gradient);
    used.push_back(i);
  }
}

void OverlappedReducer::ReduceAndApply(int local, Site site) {
  const SteadyTime start = Now();
  Launch(true);
  if (options_.step_by_bucket) {
    ApplyByBucket();
  } else {
    state_.background().Drain();
    exposed_seconds_ += SecondsSince(start);
    state_.Span(local, "gradients awaited", start);
    Apply();
  }
  ShareUpdated(site);
  Reset();
  if (!rebuilt_) Rebuild();
  CheckSync(site);
}

void OverlappedReducer::ApplyByBucket() {
  // updates a bucket while the next ones are still in flight
  double squares = 0;
  std::vector<size_t> all_used;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const SteadyTime start = Now();
    state_.background().DrainTo(accumulations_[b].ticket);
    exposed_seconds_ += SecondsSince(start);
    const torch::NoGradGuard none;
    std::vector<size_t> used;
    Average(buckets_[b], used);
    const double norm = Norm(used);
    if (!std::isfinite(norm))
      throw ReplicationError(
          70, "a gradient that is not finite, and other buckets are updated already");
    squares += norm * norm;
    update_(used);
    all_used.insert(all_used.end(), used.begin(), used.end());
  }
  last_norm_ = std::sqrt(squares);
  WarnWithoutGradient(all_used);
  ++updates_;
}

void OverlappedReducer::Rebuild() {
  rebuilt_ = true;
  // rank 0's order of this step's backward pass; what had no gradient comes last
  for (size_t i = parameters_.size(); i-- > 0;)
    if (std::find(observed_.begin(), observed_.end(), i) == observed_.end()) observed_.push_back(i);
  std::vector<uint64_t> order(observed_.begin(), observed_.end());
  ThrowReplication(state_.communicator().Broadcast({"order of the buckets", "", wrapped_at_}, 0,
                                                   std::as_writable_bytes(std::span(order))));
  MakeBuckets({order.begin(), order.end()});
  MakeAccumulations();
  Reset();
}

}  // namespace samara
