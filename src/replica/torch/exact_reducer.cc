#include "replica/torch/exact_reducer.h"

#include <utility>

namespace samara {

ExactReducer::ExactReducer(ReplicatorState& state, std::vector<torch::Tensor> parameters,
                           std::vector<torch::Tensor> buffers, const WrapOptions& options,
                           Update update, Site site)
    : GradientReducer(state, std::move(parameters), std::move(buffers), options, std::move(update),
                      site),
      parked_(static_cast<size_t>(state.locals())) {
  ResetParked();
}

void ExactReducer::Start() {
  if (!alone()) AddHooks();
}

void ExactReducer::ResetParked() {
  for (Parked& parked : parked_) {
    parked = {};
    for (const torch::Tensor& b : buffers_) parked.buffers.push_back(b.detach().clone());
  }
}

void ExactReducer::Restored(int64_t updates) {
  GradientReducer::Restored(updates);
  ResetParked();
}

void ExactReducer::ZeroGrad() {
  for (const torch::Tensor& p : parameters_) p.mutable_grad().reset();
}

void ExactReducer::SwitchReplica(int from, int to) {
  const torch::NoGradGuard none;
  Parked& old = parked_[static_cast<size_t>(from)];
  Parked& now = parked_[static_cast<size_t>(to)];
  old.gradients.resize(parameters_.size());
  now.gradients.resize(parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    torch::Tensor& gradient = parameters_[i].mutable_grad();
    old.gradients[i] = std::move(gradient);
    gradient = std::move(now.gradients[i]);
    now.gradients[i] = torch::Tensor();
  }
  // other memory, not other values in the same: a collective may still hold the old replica's
  for (size_t i = 0; i < buffers_.size(); ++i) {
    old.buffers[i] = buffers_[i].detach();
    buffers_[i].set_data(now.buffers[i]);
  }
}

void ExactReducer::GradientReady(size_t local, size_t i) {
  const torch::Tensor& gradient = parameters_[i].grad();
  if (gradient.defined()) stamps_[local][i] = VersionStamp(gradient);
}

void ExactReducer::GradientWritten(size_t i) {
  if (!IsDropped(parameters_[i].grad())) RefuseWritten(i);
}

void ExactReducer::StartFolders() {
  const auto begin = static_cast<uint32_t>(state_.first());
  for (const Bucket& bucket : buckets_) {
    folders_.emplace_back(ReduceOp::kSum,
                          ValueOrReplication(ElementTypeOf(bucket.flat.scalar_type())),
                          static_cast<uint32_t>(state_.replicas()), begin,
                          begin + static_cast<uint32_t>(state_.locals()));
  }
}

void ExactReducer::FoldInOrder(int local) {
  if (folders_.empty()) StartFolders();
  // a replica that waits for a message lets later ones reach their step before it
  if (local != folded_) {
    for (const Bucket& bucket : buckets_) early_[local].push_back(OnHost(bucket.flat).clone());
    return;
  }
  for (size_t b = 0; b < buckets_.size(); ++b) folders_[b].Add(BytesOf(OnHost(buckets_[b].flat)));
  ++folded_;
  for (; !early_.empty() && early_.begin()->first == folded_; ++folded_) {
    for (size_t b = 0; b < buckets_.size(); ++b)
      folders_[b].Add(BytesOf(early_.begin()->second[b]));
    early_.erase(early_.begin());
  }
}

void ExactReducer::Reduce(size_t b) {
  const torch::Tensor& flat = buckets_[b].flat;
  const Collective what = Describe(buckets_[b], state_.whole_batch);
  Communicator& group = state_.communicator();
  if (folders_.empty()) return TreeSum(what, flat, group);
  const torch::Tensor host = OnHost(flat);
  ThrowReplication(group.AllReduce(
      what, ReduceOp::kSum, ValueOrReplication(ElementTypeOf(flat.scalar_type())),
      static_cast<uint32_t>(state_.replicas()), folders_[b].partials(), BytesOf(host)));
  FromHost(host, flat);
}

void ExactReducer::Fill(const Bucket& bucket, int64_t samples) const {
  torch::Tensor flat = bucket.flat;
  flat.zero_();
  const torch::Tensor weight = torch::scalar_tensor(samples, flat.options().device(torch::kCPU));
  for (size_t j = 0; j < bucket.parameters.size() && samples > 0; ++j) {
    const torch::Tensor& gradient = parameters_[bucket.parameters[j]].grad();
    if (!gradient.defined()) continue;
    RequireDense(gradient);
    torch::Tensor place = flat.narrow(0, bucket.offsets[j], gradient.numel());
    torch::mul_out(place, gradient.detach().reshape({-1}), weight);
  }
  SetTail(bucket, samples,
          [&](size_t i) { return samples > 0 && parameters_[i].grad().defined(); });
}

void ExactReducer::ReduceAndApply(int local, Site site) {
  const ReplicatorState::Call call{"optimizer step",
                                   std::to_string(parameters_.size()) + " parameters", site};
  for (const Bucket& bucket : buckets_) Fill(bucket, state_.samples[static_cast<size_t>(local)]);
  if (state_.locals() > 1) FoldInOrder(local);
  ZeroGrad();
  stamps_[static_cast<size_t>(local)].assign(parameters_.size(), {});
  state_.Barrier(local, call, {}, [&](const std::vector<Leaves>&) {
    for (size_t b = 0; b < buckets_.size(); ++b) Reduce(b);
    folders_.clear();
    folded_ = 0;
    Apply();
    ShareUpdated(site);
    CheckSync(site);
    ZeroGrad();  // the averaged gradients are in memory of the next step
    return std::vector<Leaves>(static_cast<size_t>(state_.locals()));
  });
}

}  // namespace samara
