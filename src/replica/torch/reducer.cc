#include "replica/torch/reducer.h"

#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/log.h"
#include "core/sha256.h"
#include "replica/torch/exact_reducer.h"
#include "replica/torch/overlapped_reducer.h"

namespace samara {
namespace {

constexpr double kSamplesMax = 1 << 24;  // of one step: exact as a float32

void CheckOptions(const WrapOptions& options, ReplicationMode mode) {
  if (mode == ReplicationMode::kExact && (options.bf16 || options.step_by_bucket))
    throw ReplicationError(78, "bf16 and step_by_bucket change bits: they need fast mode");
  if (options.step_by_bucket && options.clip_norm > 0)
    throw ReplicationError(
        78, "step_by_bucket with clip_norm: the norm is known only when all buckets are there");
}

void CheckParameters(const std::vector<torch::Tensor>& parameters) {
  if (parameters.empty()) throw ReplicationError(78, "an optimizer without parameters");
  for (const torch::Tensor& p : parameters) {
    if (!p.is_leaf() || !p.is_floating_point())
      throw ReplicationError(
          78, DescribeTensor(p) + ": expected parameters that are floating-point leaves");
    // gradients are multiplied by samples, and sent with their count, in the parameters' type
    if (p.scalar_type() != torch::kFloat32 && p.scalar_type() != torch::kFloat64)
      throw ReplicationError(
          78, "parameters of " + DescribeTensor(p) +
                  ": expected float32 or float64; compute in half precision with autocast");
  }
}

}  // namespace

bool IsDropped(const torch::Tensor& gradient) {
  return !gradient.defined() || gradient.count_nonzero().item<int64_t>() == 0;
}

void RequireDense(const torch::Tensor& gradient) {
  if (gradient.is_sparse()) throw ReplicationError(78, "sparse gradients: expected dense ones");
}

std::shared_ptr<GradientReducer> GradientReducer::Make(ReplicatorState& state,
                                                       std::vector<torch::Tensor> parameters,
                                                       std::vector<torch::Tensor> buffers,
                                                       const WrapOptions& options, Update update,
                                                       Site site) {
  CheckOptions(options, state.mode());
  CheckParameters(parameters);
  std::shared_ptr<GradientReducer> reducer;
  if (state.mode() == ReplicationMode::kExact)
    reducer = std::make_shared<ExactReducer>(state, std::move(parameters), std::move(buffers),
                                             options, std::move(update), site);
  else
    reducer = std::make_shared<OverlappedReducer>(state, std::move(parameters), std::move(buffers),
                                                  options, std::move(update), site);
  state.Add(reducer);
  reducer->Start();
  return reducer;
}

GradientReducer::GradientReducer(ReplicatorState& state, std::vector<torch::Tensor> parameters,
                                 std::vector<torch::Tensor> buffers, const WrapOptions& options,
                                 Update update, Site site)
    : state_(state),
      parameters_(std::move(parameters)),
      buffers_(std::move(buffers)),
      options_(options),
      update_(std::move(update)),
      wrapped_at_(site),
      bucket_of_(parameters_.size()),
      stamps_(static_cast<size_t>(state.locals()), std::vector<VersionStamp>(parameters_.size())),
      backward_(static_cast<size_t>(state.locals())) {
  // equal at the start: replica 0's
  const torch::NoGradGuard none;
  for (const auto* list : {&parameters_, &buffers_}) {
    if (list->empty()) continue;
    const ReplicatorState::Call call{list == &parameters_ ? "wrap: parameters" : "wrap: buffers",
                                     DescribeLeaves(*list, ""), site};
    const Leaves theirs = state_.Broadcast({*list}, 0, call);
    for (size_t i = 0; i < list->size(); ++i) (*list)[i].detach().copy_(theirs[i]);
  }
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

void GradientReducer::AddHooks() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    auto accumulator = torch::autograd::impl::grad_accumulator(parameters_[i]);
    accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [weak = weak_from_this(), i](const torch::autograd::variable_list& out,
                                     const torch::autograd::variable_list&) {
          if (const auto reducer = weak.lock()) InAutograd([&] { reducer->OnGradient(i); });
          return out;
        }));
    accumulators_.push_back(std::move(accumulator));
  }
}

void GradientReducer::OnGradient(size_t parameter) {
  const auto local = static_cast<size_t>(state_.active());
  if (backward_[local] == SteadyTime()) backward_[local] = Now();
  GradientReady(local, parameter);
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
    bucket.flat = torch::zeros({bucket.elements + bucket.tail_size()}, options);
  }
}

void GradientReducer::SetTail(const Bucket& bucket, int64_t samples,
                              const std::function<bool(size_t)>& has_gradient) const {
  const torch::Tensor counts =
      torch::empty({bucket.tail_size()}, bucket.flat.options().device(torch::kCPU));
  counts[0] = samples;
  for (size_t j = 0; j < bucket.parameters.size(); ++j)
    counts[static_cast<int64_t>(j) + 1] = has_gradient(bucket.parameters[j]) ? 1 : 0;
  bucket.tail().copy_(counts, /*non_blocking=*/true);  // a GPU's stream orders it
}

Collective GradientReducer::Describe(const Bucket& bucket,
                                     std::optional<int64_t> whole_batch) const {
  const auto number = static_cast<size_t>(&bucket - buckets_.data());
  // ranks whose whole batches differ fail here, at no cost of their own
  const std::string rows =
      whole_batch ? ", of a whole batch of " + std::to_string(*whole_batch) : "";
  return {
      "gradients, bucket " + std::to_string(number + 1) + " of " + std::to_string(buckets_.size()),
      DescribeTensor(bucket.flat) + rows, wrapped_at_};
}

void GradientReducer::TreeSum(const Collective& what, const torch::Tensor& data,
                              Communicator& group) const {
  const auto r = static_cast<uint32_t>(state_.rank());
  const torch::Tensor host = OnHost(data);
  const Partial mine{{r, r + 1}, BytesOf(host)};
  ThrowReplication(
      group.AllReduce(what, ReduceOp::kSum, ValueOrReplication(ElementTypeOf(data.scalar_type())),
                      static_cast<uint32_t>(state_.replicas()), {&mine, 1}, BytesOf(host)));
  FromHost(host, data);
}

void GradientReducer::Average(const Bucket& bucket, std::vector<size_t>& used) {
  const torch::Tensor tail = bucket.tail().to(torch::kCPU, torch::kDouble);
  const double* counts = tail.data_ptr<double>();
  const double samples = counts[0];
  if (samples > kSamplesMax)
    throw ReplicationError(78, "more than 16,777,216 samples in one step: expected fewer");
  torch::Tensor values = bucket.values();
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
  if (order.empty()) return 0;
  std::vector<torch::Tensor> gradients;
  for (const size_t i : order) gradients.push_back(parameters_[i].grad().detach());
  const std::vector<torch::Tensor> norms = torch::_foreach_norm(gradients, 2, torch::kDouble);
  const torch::Tensor host = OnHost(torch::stack(norms));  // a GPU is waited for once
  double squares = 0;
  for (const double norm : std::span(host.data_ptr<double>(), norms.size())) squares += norm * norm;
  return std::sqrt(squares);
}

void GradientReducer::Apply() {
  const torch::NoGradGuard none;
  std::vector<size_t> used;
  for (const Bucket& bucket : buckets_) Average(bucket, used);
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
  state_.Span(state_.active(), "update", start);
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

void GradientReducer::RefuseWritten(size_t i) const {
  throw ReplicationError(
      78, "the gradient of parameter " + std::to_string(i) + ", " + DescribeTensor(parameters_[i]) +
              ", of the " + Collective{"optimizer wrapped", "", wrapped_at_}.text() +
              ", was written between the backward pass and step(), before it is averaged over the "
              "replicas: to clip by the global norm, Wrap(optimizer, {.clip_norm = 1.0}), in "
              "Python wrap(optimizer, clip_norm=1.0); to scale gradients, scale the loss");
}

void GradientReducer::CheckUnmodified(int local) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const torch::Tensor& gradient = parameters_[i].grad();
    const VersionStamp& stamp = stamps_[static_cast<size_t>(local)][i];
    if (stamp == VersionStamp() || (gradient.defined() && stamp == VersionStamp(gradient)))
      continue;
    GradientWritten(i);
  }
}

void GradientReducer::Step(int local, Site site) {
  const torch::NoGradGuard none;
  if (!alone()) CheckUnmodified(local);
  if (auto& begin = backward_[static_cast<size_t>(local)]; begin != SteadyTime())
    state_.Span(local, "backward pass", std::exchange(begin, {}));
  ReduceAndApply(local, site);
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

}  // namespace samara
