#include "rl/learner/policy_versions.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "core/resources.h"
#include "rl/learner/flat_optimizer.h"

namespace samara {

using torch::Tensor;

Acting::Acting(const AgentSetup& setup, const AgentNetworkConfig& network,
               const InputLayout& layout, const std::optional<ActionValueRule>& values)
    : network_config_(network),
      distribution_(MakeDistribution(setup.environment.action)),
      by_values_(values),
      share_(setup.share),
      rows_max_(setup.rows_max),
      stream_(network.device),
      by_hand_(layout.is_vector() && !by_values_),
      row_(distribution_),
      versions_(setup.versions_kept, setup.versions_every) {
  const bool continuous = distribution_.continuous();
  shape_.observation_bytes = layout.plane_bytes;
  shape_.actions = shape_.action_values =
      continuous ? static_cast<size_t>(distribution_.components()) : 0;
  if (by_values_)
    shape_.values = static_cast<size_t>(network.outputs);
  else
    shape_.behaviour = static_cast<size_t>(distribution_.parameters());
  shape_.state = static_cast<size_t>(network.core.state_size());
  shape_.history_bytes = (layout.depth() - 1) * layout.plane_bytes;
  const SlotMemory::Shape slots{.slots = setup.slots,
                                .rows_max = setup.rows_max,
                                .state = network.core.state_size(),
                                .components = distribution_.components()};
  slots_ = network.native ? MakeHostSlots(layout, slots)
                          : MakeDeviceSlots(layout, slots, network.device);
  if (!network.native) shown_ = MakeFrozen();
}

Status Acting::Infer(InferenceBatch& batch) {
  try {
    return Forward(batch);
  } catch (const std::exception& e) {  // torch's: no memory, above all
    return StatusOf(e).Annotate("inference");
  }
}

namespace {

std::span<const float> RowOf(const std::vector<float>& all, size_t i, size_t size) {
  return std::span(all).subspan(i * size, size);
}

// The first rows of a tensor.
void Copy(const Tensor& from, size_t rows, size_t size, std::vector<float>& to) {
  std::copy_n(from.data_ptr<float>(), rows * size, to.begin());
}

}  // namespace

Acting::RowOutputs Acting::Values(const AgentNetworkImpl::Output& output) const {
  RowOutputs outputs;
  outputs.values = ActionValues(output, by_values_->dueling)[0];
  return outputs;
}

Acting::RowOutputs Acting::Draws(const AgentNetworkImpl::Output& output, const Tensor& uniforms,
                                 bool greedy) const {
  RowOutputs outputs;
  outputs.behaviour = output.policy[0].contiguous();
  outputs.values = output.value[0];
  const Tensor chosen = greedy ? distribution_.Mode(outputs.behaviour)
                               : distribution_.Sample(outputs.behaviour, uniforms);
  if (distribution_.continuous())
    outputs.samples = chosen, outputs.squashed = distribution_.Squash(chosen);
  else
    outputs.index = distribution_.Join(chosen);
  return outputs;
}

// Everything on the CPU, and dense.
void Acting::Fetch(RowOutputs& outputs, KeptRows& kept) {
  const std::vector<Tensor*> all = {&outputs.index,     &outputs.samples, &outputs.squashed,
                                    &outputs.behaviour, &outputs.values,  &kept.state,
                                    &kept.history};
  if (!network_config_.native) return download_.Fetch(all);
  for (Tensor* tensor : all)
    if (tensor->defined()) *tensor = tensor->contiguous();
}

void Acting::Write(const RowOutputs& outputs, InferenceBatch& batch) const {
  const size_t n = batch.rows.size();
  Copy(outputs.values, n, shape_.values, batch.values);
  if (outputs.behaviour.defined()) Copy(outputs.behaviour, n, shape_.behaviour, batch.behaviour);
  if (outputs.samples.defined()) {
    Copy(outputs.samples, n, shape_.action_values, batch.action_values);
    Copy(outputs.squashed, n, shape_.actions, batch.actions);
  }
  for (size_t i = 0; i < n; ++i) {
    if (by_values_)
      batch.index[i] = by_values_->exploration.Choose(
          batch.rows[i], share_.first + batch.rows[i].slot, RowOf(batch.values, i, shape_.values));
    else if (outputs.index.defined())
      batch.index[i] = static_cast<int32_t>(outputs.index.data_ptr<int64_t>()[i]);
  }
}

// Says what each row may be used for.
void Acting::SetStatus(InferenceBatch& batch) const {
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    const bool finite = AllFinite(RowOf(batch.behaviour, i, shape_.behaviour)) &&
                        AllFinite(RowOf(batch.values, i, shape_.values));
    batch.status[i] =
        finite ? InferenceBatch::RowStatus::kOk : InferenceBatch::RowStatus::kNotFinite;
  }
}

// Values that unrolls store of the rows that keep.
void Acting::WriteKept(const KeptRows& kept, InferenceBatch& batch) const {
  size_t n = 0;
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    if (!batch.rows[i].keeps) continue;
    if (kept.state.defined())
      std::copy_n(kept.state.data_ptr<float>() + n * shape_.state, shape_.state,
                  batch.state.data() + i * shape_.state);
    if (kept.history.defined())
      std::memcpy(batch.history.data() + i * shape_.history_bytes,
                  kept.history.data_ptr<uint8_t>() + n * shape_.history_bytes,
                  shape_.history_bytes);
    ++n;
  }
}

// Rows of a batch as computed. A GPU meets few shapes: it chooses how to compute each once.
int64_t Acting::Padded(const InferenceBatch& batch) const {
  const auto rows = static_cast<int64_t>(std::max(batch.padded, batch.rows.size()));
  if (network_config_.native || batch.padded > 0) return rows;
  const int64_t step = rows > 64 ? 64 : 8;
  return std::clamp((rows + step - 1) / step * step, rows, int64_t{rows_max_});
}

Status Acting::Forward(InferenceBatch& batch) {
  // one, as MakeLearner says: without it a new thread has as many as there are cores
  [[maybe_unused]] thread_local const bool one = (at::init_num_threads(), true);
  const torch::InferenceMode inference;
  const PriorityStream::Use on_stream(stream_);
  AgentNetworkImpl& network = NetworkOf(batch.version);
  if (by_hand_ && network.dense()) {
    if (!batch.rows.empty()) ForwardByHand(network, batch);
    return Status::Ok();
  }

  // 1 what the rows bring
  const int64_t rows = Padded(batch);
  slots_->Send(batch, rows);

  // 2 one forward pass for all, and their actions
  const bool greedy = !batch.rows.empty() && batch.rows[0].greedy;
  const Computation& computed = Compute(network, rows, greedy);

  // 3 what each row may be used for
  RowOutputs outputs = computed.outputs;
  KeptRows kept = slots_->Keep(computed.inputs);
  Fetch(outputs, kept);
  Write(outputs, batch);
  WriteKept(kept, batch);
  SetStatus(batch);
  return Status::Ok();
}

// Infers with a network of dense layers, without torch, whose operations take longer than the
// products. Such a network has no state, and a vector no history.
void Acting::ForwardByHand(const AgentNetworkImpl& network, InferenceBatch& batch) {
  const size_t n = batch.rows.size(), bytes = shape_.observation_bytes;
  const auto input = std::as_writable_bytes(dense_.Rows(network, n));
  for (size_t i = 0; i < n; ++i)
    std::memcpy(input.data() + i * bytes, batch.rows[i].observation.data(), bytes);
  dense_.Forward(network);
  const std::span<const float> policy = dense_.policy();
  std::ranges::copy(policy, batch.behaviour.begin());
  std::ranges::copy(dense_.value(), batch.values.begin());
  std::vector<float> uniforms(static_cast<size_t>(distribution_.components()));
  for (size_t i = 0; i < n; ++i) {
    const float* parameters = policy.data() + i * shape_.behaviour;
    if (!batch.rows[i].greedy) FillUniforms(batch.rows[i], uniforms);
    const float* drawn = batch.rows[i].greedy ? nullptr : uniforms.data();
    if (distribution_.continuous())
      row_.DrawSample(parameters, drawn, batch.action_values.data() + i * shape_.action_values,
                      batch.actions.data() + i * shape_.actions);
    else
      batch.index[i] = static_cast<int32_t>(row_.DrawIndex(parameters, drawn));
  }
  SetStatus(batch);
}

// The network of a version. On a device its parameters are always at the same place.
AgentNetworkImpl& Acting::NetworkOf(uint64_t& version) {
  AgentNetwork network = versions_.Get(version);
  CHECK(network != nullptr) << "version " << version << " is not kept";
  if (network != followed_) {
    followed_ = std::move(network);
    if (shown_ != nullptr) shown_->Follow(*followed_), shown_->Freeze();
  }
  return shown_ != nullptr ? *shown_ : *followed_;
}

// Computes outputs from what the rows bring and the slots remember. `network`: NetworkOf's.
Acting::Computation& Acting::Compute(AgentNetworkImpl& network, int64_t rows, bool greedy) {
  // a module of the user may do what cannot be recorded
  const bool record = network_config_.module == nullptr;
  const auto found =
      computations_.try_emplace({rows, greedy}, network_config_.device, record).first;
  Computation& computed = found->second;
  computed.graph.Run([&] {
    computed.inputs = slots_->Take();
    const auto out = network.forward(computed.inputs.input, computed.inputs.entering);
    computed.outputs = by_values_ ? Values(out) : Draws(out, computed.inputs.uniforms, greedy);
    slots_->Leave(out.state);
  });
  return computed;
}

AgentNetwork Acting::MakeFrozen() const {
  auto network = std::make_shared<AgentNetworkImpl>(network_config_);
  for (Tensor& parameter : network->parameters()) parameter.set_requires_grad(false);
  return network;
}

void Acting::Publish(uint64_t version, const AgentNetworkImpl& network) {
  const torch::NoGradGuard no_gradient;
  AgentNetwork copy;
  {
    const MutexLock lock(mu_);
    // a thread that still infers with a spare one holds it too
    const auto free = std::find_if(spare_.begin(), spare_.end(),
                                   [](const AgentNetwork& n) { return n.use_count() == 1; });
    if (free != spare_.end()) {
      copy = *free;
      spare_.erase(free);
    }
  }
  if (copy == nullptr) copy = MakeFrozen();
  copy->Follow(network);
  copy->Freeze();
  // inference goes on with it on another stream
  Synchronize(network_config_.device);
  for (AgentNetwork& gone : versions_.Publish(version, std::move(copy))) {
    const MutexLock lock(mu_);
    spare_.push_back(std::move(gone));
  }
}

}  // namespace samara
