#include "replica/torch/reducer.h"

#include <c10/core/StreamGuard.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/check.h"
#include "core/log.h"
#include "core/sha256.h"

namespace samara {
namespace {

constexpr double kSamplesMax = 1 << 24;  // of one step: exact as a float32

// What this thread has asked a GPU to do with the tensor is on this stream; none on the CPU.
std::optional<c10::Stream> StreamOf(const torch::Tensor& tensor) {
  if (tensor.device().is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
}

// Of a few values spread over the tensor; 0 where they are not at hand.
uint64_t Glance(const torch::Tensor& tensor) {
  constexpr int64_t kValues = 8;
  if (!tensor.device().is_cpu() || tensor.layout() != torch::kStrided ||
      !tensor.is_non_overlapping_and_dense())
    return 0;
  const auto* bytes = static_cast<const char*>(tensor.const_data_ptr());
  const int64_t size = tensor.element_size(), count = std::min(kValues, tensor.numel());
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes + tensor.numel() * i / count * size,
                std::min(static_cast<size_t>(size), sizeof bits));
    sum = (sum ^ bits) * 0x9E3779B97F4A7C15;
  }
  return sum;
}

}  // namespace

GradientReducer::Mark::Mark(const torch::Tensor& gradient)
    : tensor(gradient.getIntrusivePtr()), version(gradient._version()), values(Glance(gradient)) {}

GradientReducer::GradientReducer(ReplicatorState& state, std::vector<torch::Tensor> parameters,
                                 std::vector<torch::Tensor> buffers, const WrapOptions& options,
                                 Update update, Site site)
    : state_(state),
      still_there_(state.weak_from_this()),
      parameters_(std::move(parameters)),
      buffers_(std::move(buffers)),
      options_(options),
      update_(std::move(update)),
      wrapped_at_(site),
      bucket_of_(parameters_.size()),
      aside_(static_cast<size_t>(state.locals())),
      marks_(static_cast<size_t>(state.locals()), std::vector<Mark>(parameters_.size())),
      backward_(static_cast<size_t>(state.locals())),
      has_gradient_(parameters_.size()),
      ready_(parameters_.size()) {
  if (state.mode() == ReplicationMode::kExact && (options_.bf16 || options_.step_by_bucket))
    throw ReplicationError(78, "bf16 and step_by_bucket change bits: they need fast mode");
  if (options_.step_by_bucket && options_.clip_norm > 0)
    throw ReplicationError(
        78, "step_by_bucket with clip_norm: the norm is known only when all buckets are there");
  if (parameters_.empty()) throw ReplicationError(78, "an optimizer without parameters");
  for (const torch::Tensor& p : parameters_) {
    if (!p.is_leaf() || !p.is_floating_point())
      throw ReplicationError(
          78, DescribeTensor(p) + ": expected parameters that are floating-point leaves");
    // gradients are multiplied by samples, and travel with their count, in the parameters' type
    if (p.scalar_type() != torch::kFloat32 && p.scalar_type() != torch::kFloat64)
      throw ReplicationError(
          78, "parameters of " + DescribeTensor(p) +
                  ": expected float32 or float64; compute in half precision with autocast");
  }
  // equal at the start: replica 0's
  const torch::NoGradGuard none;
  for (const auto* list : {&parameters_, &buffers_}) {
    if (list->empty()) continue;
    const ReplicatorState::Call call{list == &parameters_ ? "wrap: parameters" : "wrap: buffers",
                                     DescribeLeaves(*list, ""), site};
    const Leaves theirs = state_.Broadcast({*list}, 0, call);
    for (size_t i = 0; i < list->size(); ++i) (*list)[i].detach().copy_(theirs[i]);
  }
  StartAside();
  // ZeRO-1: parameters in order, as even as whole parameters allow
  int64_t total = 0, before = 0;
  for (const torch::Tensor& p : parameters_) total += p.numel();
  for (const torch::Tensor& p : parameters_) {
    const int64_t middle = before + p.numel() / 2;
    owner_.push_back(!options_.shard_state
                         ? state_.rank()
                         : static_cast<int>(std::min<int64_t>(
                               state_.world_size() - 1,
                               middle * state_.world_size() / std::max<int64_t>(1, total))));
    before += p.numel();
  }
  // the last layers' gradients come first
  std::vector<size_t> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), size_t{0});
  MakeBuckets(order);
}

GradientReducer::~GradientReducer() {
  const auto state = still_there_.lock();  // its end has dropped what was queued
  if (next_launch_ == 0 || !state) return;
  try {
    state->background().Drain();  // reductions use what goes now
  } catch (...) {
    // whoever asks the group next is told
  }
}

void GradientReducer::Start() {
  state_.Add(weak_from_this());
  if (!fast() && alone()) return;
  if (fast()) sum_ = state_.SumFor(parameters_[0].device(), wrapped_at_);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    auto accumulator = torch::autograd::impl::grad_accumulator(parameters_[i]);
    accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [weak = weak_from_this(), i](const torch::autograd::variable_list& out,
                                     const torch::autograd::variable_list&) {
          if (const auto reducer = weak.lock()) InAutograd([&] { reducer->Ready(i); });
          return out;
        }));
    accumulators_.push_back(std::move(accumulator));
  }
  if (fast()) Reset();
}

void GradientReducer::MakeBuckets(const std::vector<size_t>& order) {
  buckets_.clear();
  const auto type_of = [&](const Bucket& b) { return parameters_[b.parameters[0]].scalar_type(); };
  for (const size_t i : order) {
    const torch::Tensor& p = parameters_[i];
    const auto bytes = static_cast<int64_t>(options_.bucket_bytes);
    if (buckets_.empty() || type_of(buckets_.back()) != p.scalar_type() ||
        (buckets_.back().elements + p.numel()) * static_cast<int64_t>(p.element_size()) > bytes) {
      buckets_.emplace_back();
    }
    Bucket& bucket = buckets_.back();
    bucket.parameters.push_back(i);
    bucket.offsets.push_back(bucket.elements);
    bucket.elements += p.numel();
    bucket_of_[i] = buckets_.size() - 1;
  }
  for (Bucket& bucket : buckets_) {
    const auto options = parameters_[bucket.parameters[0]].options().requires_grad(false);
    bucket.flat = torch::zeros(
        {bucket.elements + 1 + static_cast<int64_t>(bucket.parameters.size())}, options);
    if (!fast() || alone()) continue;
    bucket.own = torch::zeros({bucket.elements}, options);
    for (size_t j = 0; j < bucket.parameters.size(); ++j) {
      const torch::Tensor& p = parameters_[bucket.parameters[j]];
      // variable_data: each counts its own versions
      bucket.gradients.push_back(
          bucket.own.narrow(0, bucket.offsets[j], p.numel()).view(p.sizes()).variable_data());
    }
  }
}

torch::Tensor& GradientReducer::PlaceOf(size_t i) {
  Bucket& bucket = buckets_[bucket_of_[i]];
  const auto j =
      std::find(bucket.parameters.begin(), bucket.parameters.end(), i) - bucket.parameters.begin();
  return bucket.gradients[static_cast<size_t>(j)];
}

void GradientReducer::Change(int from, int to) {
  const torch::NoGradGuard none;
  Aside& old = aside_[static_cast<size_t>(from)];
  Aside& now = aside_[static_cast<size_t>(to)];
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

void GradientReducer::StartAside() {
  for (Aside& aside : aside_) {
    aside = {};
    for (const torch::Tensor& b : buffers_) aside.buffers.push_back(b.detach().clone());
  }
}

void GradientReducer::Restored(int64_t updates) {
  updates_ = updates;
  StartAside();
}

void GradientReducer::ZeroGrad() {
  if (!fast()) {
    for (const torch::Tensor& p : parameters_) p.mutable_grad().reset();
    return;
  }
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

bool GradientReducer::sends() const { return next_launch_ > 0; }

std::shared_ptr<void> GradientReducer::NoSync() {
  ++no_sync_;
  return {nullptr, [self = shared_from_this()](void*) { --self->no_sync_; }};
}

void GradientReducer::Fill(const Bucket& bucket, torch::Tensor flat, int64_t samples) const {
  flat.zero_();
  for (size_t j = 0; j < bucket.parameters.size() && samples > 0; ++j) {
    const torch::Tensor& gradient = parameters_[bucket.parameters[j]].grad();
    if (!gradient.defined()) continue;
    if (gradient.is_sparse()) throw ReplicationError(78, "sparse gradients: expected dense ones");
    torch::Tensor place = flat.narrow(0, bucket.offsets[j], gradient.numel());
    torch::mul_out(place, gradient.detach().reshape({-1}),
                   torch::scalar_tensor(samples, flat.options()));
    flat[bucket.elements + 1 + static_cast<int64_t>(j)] = 1;
  }
  flat[bucket.elements] = samples;
}

void GradientReducer::Reduce(Bucket& bucket, std::optional<int64_t> whole_batch,
                             std::span<const Partial> partials, Communicator& group) {
  const auto number = static_cast<size_t>(&bucket - buckets_.data());
  // ranks whose whole batches differ are told so here, at no cost of their own
  const std::string rows =
      whole_batch ? ", of a whole batch of " + std::to_string(*whole_batch) : "";
  const Collective what{
      "gradients, bucket " + std::to_string(number + 1) + " of " + std::to_string(buckets_.size()),
      DescribeTensor(bucket.flat) + rows, wrapped_at_};
  const auto type = ValueOrReplication(ElementTypeOf(bucket.flat.scalar_type()));
  const auto leaves = static_cast<uint32_t>(state_.replicas());
  if (!partials.empty()) {
    return ThrowReplication(
        group.AllReduce(what, ReduceOp::kSum, type, leaves, partials, BytesOf(bucket.flat)));
  }
  if (!options_.bf16 || type != ElementType::kF32 || state_.world_size() == 1)
    return Sum(what, bucket.flat, group);
  // the tail's counts stay exact
  const torch::Tensor values = bucket.flat.narrow(0, 0, bucket.elements);
  const torch::Tensor narrow = values.to(torch::kBFloat16);
  Sum(what, narrow, group);
  Sum(what, bucket.flat.narrow(0, bucket.elements, bucket.flat.numel() - bucket.elements), group);
  values.copy_(narrow);
}

void GradientReducer::Sum(const Collective& what, const torch::Tensor& data, Communicator& group) {
  if (sum_ != nullptr && sum_->Takes(data)) {
    const auto run = [&](SteadyTime deadline) {
      return sum_->Sum(data, deadline, [&] { return group.failure(); });
    };
    return ThrowReplication(group.Delegate(what, data.nbytes(), run));
  }
  const auto r = static_cast<uint32_t>(state_.rank());
  const torch::Tensor host = OnHost(data);  // itself on the CPU
  const Partial mine{{r, r + 1}, BytesOf(host)};
  ThrowReplication(
      group.AllReduce(what, ReduceOp::kSum, ValueOrReplication(ElementTypeOf(data.scalar_type())),
                      static_cast<uint32_t>(state_.replicas()), {&mine, 1}, BytesOf(host)));
  if (host.data_ptr() != data.data_ptr()) data.copy_(host);
}

void GradientReducer::Average(Bucket& bucket, std::vector<size_t>& used) {
  const torch::Tensor tail =
      bucket.flat.narrow(0, bucket.elements, bucket.flat.numel() - bucket.elements)
          .to(torch::kCPU, torch::kDouble);
  const double* counts = tail.data_ptr<double>();
  const double samples = counts[0];
  if (samples > kSamplesMax)
    throw ReplicationError(78, "more than 16,777,216 samples in one step: expected fewer");
  torch::Tensor values = bucket.flat.narrow(0, 0, bucket.elements);
  if (samples > 0) values.div_(samples);
  for (size_t j = 0; j < bucket.parameters.size(); ++j) {
    const size_t i = bucket.parameters[j];
    const torch::Tensor& p = parameters_[i];
    if (samples > 0 && counts[j + 1] > 0) {
      p.mutable_grad() = values.narrow(0, bucket.offsets[j], p.numel()).view(p.sizes());
      used.push_back(i);
    } else {
      p.mutable_grad().reset();
    }
  }
}

double GradientReducer::Norm(const std::vector<size_t>& used) const {
  std::vector<size_t> order = used;
  std::sort(order.begin(), order.end());  // the same sum whatever the buckets
  double squares = 0;
  for (const size_t i : order) {
    const double norm = torch::linalg_vector_norm(parameters_[i].grad().detach(), 2, std::nullopt,
                                                  false, torch::kDouble)
                            .item<double>();
    squares += norm * norm;
  }
  return std::sqrt(squares);
}

void GradientReducer::Apply() {
  const torch::NoGradGuard none;
  std::vector<size_t> used;
  for (Bucket& bucket : buckets_) Average(bucket, used);
  last_norm_ = Norm(used);
  WarnWithoutGradient(used);
  if (!std::isfinite(last_norm_)) {
    // every rank has the same bits, so every rank decides alike
    if (skipped_in_a_row_ == 0) {
      Warn("a gradient that is not finite: this update is skipped; " +
           std::to_string(options_.nonfinite_max) + " in a row end the program");
    }
    ++skipped_;
    if (++skipped_in_a_row_ >= options_.nonfinite_max) {
      throw ReplicationError(70,
                             std::to_string(skipped_in_a_row_) +
                                 " updates in a row had a gradient that is not finite: lower the "
                                 "learning rate, or go on from an earlier checkpoint");
    }
    return;
  }
  skipped_in_a_row_ = 0;
  if (options_.clip_norm > 0 && last_norm_ > options_.clip_norm) {
    for (const size_t i : used)
      parameters_[i].grad().detach().mul_(options_.clip_norm / last_norm_);
  }
  const SteadyTime start = Now();
  update_(used);
  state_.Span(state_.turn(), "update", start);
  ++updates_;
}

void GradientReducer::Warn(const std::string& what) const {
  if (state_.rank() != 0) return;
  LogWarning(Collective{"optimizer wrapped", "", wrapped_at_}.text() + ", update " +
             std::to_string(updates_ + 1) + ": " + what);
}

// Once: the program has forgotten its backward pass.
void GradientReducer::WarnWithoutGradient(const std::vector<size_t>& used) {
  if (used.empty() && !warned_ && state_.samples[0] > 0) {
    warned_ = true;
    Warn("no parameter has a gradient: expected backward() before step()");
  }
}

void GradientReducer::ApplyByBucket() {
  // updates a bucket while the next ones are still on their way
  double squares = 0;
  std::vector<size_t> all_used;
  for (Bucket& bucket : buckets_) {
    const SteadyTime start = Now();
    state_.background().DrainTo(bucket.ticket);
    exposed_seconds_ += SecondsSince(start);
    const torch::NoGradGuard none;
    std::vector<size_t> used;
    Average(bucket, used);
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

void GradientReducer::FoldInOrder(int local) {
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

void GradientReducer::Written(size_t i) const {
  throw ReplicationError(
      78, "the gradient of parameter " + std::to_string(i) + ", " + DescribeTensor(parameters_[i]) +
              ", of the " + Collective{"optimizer wrapped", "", wrapped_at_}.text() +
              ", was written between the backward pass and step(), before it is averaged over the "
              "replicas: to clip by the global norm, Wrap(optimizer, {.clip_norm = 1.0}), in "
              "Python wrap(optimizer, clip_norm=1.0); to scale gradients, scale the loss");
}

void GradientReducer::RefuseWritten(int local) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const torch::Tensor& gradient = parameters_[i].grad();
    const Mark& mark = marks_[static_cast<size_t>(local)][i];
    if (mark == Mark() || (gradient.defined() && mark == Mark(gradient))) continue;
    if (fast() && bucket_of_[i] < next_launch_) Written(i);  // dropping it is too late too
    const bool dropped = !gradient.defined() || gradient.count_nonzero().item<int64_t>() == 0;
    if (!dropped && (!fast() || has_gradient_[i])) Written(i);
    if (!fast()) continue;
    // zeros are what a module's zero_grad leaves; anything else was made by hand
    torch::Tensor& place = PlaceOf(i);
    if (dropped) {
      place.zero_();
      has_gradient_[i] = has_gradient_[i] && gradient.defined();
    } else {
      if (gradient.data_ptr() != place.data_ptr()) place.copy_(gradient);
      has_gradient_[i] = true;
    }
  }
}

void GradientReducer::Step(int local, Site site) {
  const torch::NoGradGuard none;
  if (!alone()) RefuseWritten(local);
  if (auto& begin = backward_[static_cast<size_t>(local)]; begin != SteadyTime())
    state_.Span(local, "backward pass", std::exchange(begin, {}));
  const int64_t samples = state_.samples[static_cast<size_t>(local)];
  const ReplicatorState::Call call{"optimizer step",
                                   std::to_string(parameters_.size()) + " parameters", site};
  if (fast()) {
    const SteadyTime start = Now();
    Launch(true);
    if (alone())
      for (Bucket& bucket : buckets_) Fill(bucket, bucket.flat, samples);
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
    return;
  }
  const bool one = state_.locals() == 1;
  if (!one && folders_.empty()) {
    const auto begin = static_cast<uint32_t>(state_.first());
    for (const Bucket& bucket : buckets_) {
      folders_.emplace_back(ReduceOp::kSum,
                            ValueOrReplication(ElementTypeOf(bucket.flat.scalar_type())),
                            static_cast<uint32_t>(state_.replicas()), begin,
                            begin + static_cast<uint32_t>(state_.locals()));
    }
  }
  for (size_t b = 0; b < buckets_.size(); ++b) {
    Fill(buckets_[b], buckets_[b].flat, samples);
  }
  if (!one) FoldInOrder(local);
  ZeroGrad();
  marks_[static_cast<size_t>(local)].assign(parameters_.size(), {});
  state_.Meet(local, call, {}, [&](const std::vector<Leaves>&) {
    for (size_t b = 0; b < buckets_.size(); ++b) {
      const auto partials = one ? std::vector<Partial>{} : folders_[b].partials();
      Reduce(buckets_[b], state_.whole_batch, partials, state_.communicator());
    }
    folders_.clear();
    folded_ = 0;
    Apply();
    ShareUpdated(site);
    CheckSync(site);
    ZeroGrad();  // the averaged gradients are in memory of the next step
    return std::vector<Leaves>(static_cast<size_t>(state_.locals()));
  });
}

void GradientReducer::ShareUpdated(Site site) {
  if (!options_.shard_state || state_.world_size() == 1) return;
  std::vector<torch::Tensor> mine;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (owner_[i] == state_.rank()) mine.push_back(OnHost(parameters_[i]));
  const std::string bytes = Pack(mine);
  std::vector<std::vector<std::byte>> all;
  ThrowReplication(state_.communicator().AllGatherRagged({"updated parameters", "", site},
                                                         std::as_bytes(std::span(bytes)), all));
  std::vector<Leaves> theirs;
  for (const auto& record : all) {
    theirs.push_back(
        ValueOrReplication(Unpack({reinterpret_cast<const char*>(record.data()), record.size()})));
  }
  std::vector<size_t> at(all.size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto owner = static_cast<size_t>(owner_[i]);
    parameters_[i].detach().copy_(theirs[owner].at(at[owner]++));
  }
}

std::string GradientReducer::ParameterHash() const {
  Sha256 hash;
  for (const torch::Tensor& p : parameters_) {
    const torch::Tensor host = OnHost(p);
    const auto bytes = BytesOf(host);
    hash.Update({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  return Hex(hash.Finish());
}

void GradientReducer::CheckSync(Site site) {
  const int every = state_.options().check_every;
  if (every <= 0 || updates_ % every != 0 || state_.world_size() == 1) return;
  state_.RequireAgreement("the hash of the parameters after update " + std::to_string(updates_),
                          ParameterHash(), {"hash of the parameters", "", site});
}

// --- fast mode

void GradientReducer::Reset() {
  next_launch_ = 0;
  std::fill(has_gradient_.begin(), has_gradient_.end(), false);
  std::fill(ready_.begin(), ready_.end(), false);
  for (Bucket& bucket : buckets_) {
    bucket.pending = bucket.parameters.size();
    if (!alone()) bucket.own.zero_();
    for (size_t j = 0; j < bucket.parameters.size(); ++j) {
      const size_t i = bucket.parameters[j];
      torch::Tensor& gradient = parameters_[i].mutable_grad();
      gradient = alone() ? torch::Tensor() : bucket.gradients[j];
      if (!alone()) marks_[0][i] = Mark(gradient);
    }
  }
}

void GradientReducer::Ready(size_t i) {
  const torch::Tensor& p = parameters_[i];
  const auto local = static_cast<size_t>(state_.turn());
  if (backward_[local] == SteadyTime()) backward_[local] = Now();
  Mark& mark = marks_[local][i];
  if (!fast()) {
    if (p.grad().defined()) mark = Mark(p.grad());
    return;
  }
  Bucket& bucket = buckets_[bucket_of_[i]];
  if (!alone()) {
    torch::Tensor& place = PlaceOf(i);
    if (p.grad().data_ptr() != place.data_ptr()) {
      // somebody has reset the gradient: torch made a new one
      const torch::NoGradGuard none;
      place.copy_(p.grad().detach());
      p.mutable_grad() = place;
    }
    mark = Mark(place);
  }
  if (bucket_of_[i] < next_launch_ || (no_sync_ == 0 && ready_[i]))
    throw ReplicationError(78,
                           "a second backward pass before the optimizer's step: hold NoSync() "
                           "during all but the last one");
  has_gradient_[i] = true;
  if (no_sync_ > 0) return;
  ready_[i] = true;
  if (!rebuilt_) observed_.push_back(i);
  --bucket.pending;
  if (options_.overlap) Launch(false);
}

void GradientReducer::Launch(bool all) {
  const torch::NoGradGuard none;
  // strictly in the order of the buckets, which is the same on all ranks
  while (next_launch_ < buckets_.size() && (all || buckets_[next_launch_].pending == 0)) {
    Bucket& bucket = buckets_[next_launch_++];
    if (alone()) continue;  // nothing is sent: Step takes what is there then
    const int64_t samples = state_.samples[0];
    torch::Tensor values = bucket.flat.narrow(0, 0, bucket.elements);
    if (samples == 0)
      values.zero_();
    else
      torch::mul_out(values, bucket.own, torch::scalar_tensor(samples, values.options()));
    bucket.flat[bucket.elements] = samples;
    for (size_t j = 0; j < bucket.parameters.size(); ++j)
      bucket.flat[bucket.elements + 1 + static_cast<int64_t>(j)] =
          samples > 0 && has_gradient_[bucket.parameters[j]] ? 1 : 0;
    bucket.ticket = state_.background().Post(
        [this, &bucket, stream = StreamOf(bucket.flat), whole_batch = state_.whole_batch] {
          const torch::NoGradGuard off;
          const c10::OptionalStreamGuard after(stream);  // what filled the bucket
          Reduce(bucket, whole_batch, {}, state_.background_communicator());
        });
  }
}

void GradientReducer::Rebuild() {
  rebuilt_ = true;
  // rank 0's order of this step's backward pass; what had no gradient comes last
  for (size_t i = parameters_.size(); i-- > 0;)
    if (std::find(observed_.begin(), observed_.end(), i) == observed_.end()) observed_.push_back(i);
  std::vector<uint64_t> order(observed_.begin(), observed_.end());
  ThrowReplication(state_.communicator().Broadcast({"order of the buckets", "", wrapped_at_}, 0,
                                                   std::as_writable_bytes(std::span(order))));
  MakeBuckets({order.begin(), order.end()});
  Reset();
}

}  // namespace samara
