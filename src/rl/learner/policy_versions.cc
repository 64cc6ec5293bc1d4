#include "rl/learner/policy_versions.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/bytes.h"
#include "core/check.h"
#include "core/rng.h"
#include "nn/torch/first_line.h"
#include "rl/learner/flat_optimizer.h"
#include "rl/trajectory/frame_index.h"

namespace samara {

using torch::Tensor;

InputLayout InputLayout::Make(const ObservationSpec& spec,
                              const std::optional<FrameStackRule>& stack) {
  InputLayout layout;
  layout.bytes = spec.dtype == DType::kUint8;
  layout.plane_bytes = layout.pixel_bytes = spec.bytes();
  layout.channels = static_cast<int64_t>(spec.elements());
  if (!spec.image()) {
    CHECK(!stack) << "vectors are not stacked";
    return layout;
  }
  const bool gray = spec.shape.size() == 2;
  layout.height = spec.shape[0], layout.width = spec.shape[1];
  layout.channels = gray ? 1 : spec.shape[2];
  layout.pixel_bytes = static_cast<size_t>(layout.channels) * SizeOf(spec.dtype);
  layout.stack = stack.value_or(FrameStackRule{.depth = gray ? 4 : 1});
  // gray images of depth 1 too: checkpoints hold what their slots remember
  layout.stacked = gray || layout.stack.depth > 1;
  layout.channels *= layout.stack.depth;
  return layout;
}

Tensor InputLayout::MakeInputs(int64_t rows) const {
  return torch::zeros({rows, height, width, channels}, bytes ? torch::kUInt8 : torch::kFloat32);
}

namespace {

// out[i][plane] = planes[plane][i] for `n` pixels of `bytes`; a null plane is zeros. `kBytes`: the
// same where the compiler may know it, else 0.
template <size_t kBytes>
void Interleave(std::span<const std::byte* const> planes, size_t n, size_t bytes, std::byte* out) {
  const size_t pixel = kBytes > 0 ? kBytes : bytes, stride = planes.size() * pixel;
  for (const std::byte* plane : planes) {
    std::byte* to = out;
    out += pixel;
    for (size_t i = 0; i < n; ++i, to += stride) {
      if (plane == nullptr)
        std::memset(to, 0, pixel);
      else
        std::memcpy(to, plane + i * pixel, pixel);
    }
  }
}

constexpr size_t kInterleave4Max = 1 << 20;

// The usual depth of gray bytes, four at a time. REQUIRES: n <= kInterleave4Max.
void Interleave4(std::span<const std::byte* const> planes, size_t n, uint8_t* out) {
  static const std::vector<std::byte> zeros(kInterleave4Max);
  const uint8_t* p[4];
  for (size_t i = 0; i < 4; ++i)
    p[i] = reinterpret_cast<const uint8_t*>(planes[i] != nullptr ? planes[i] : zeros.data());
  for (size_t i = 0; i < n; ++i) {
    const uint32_t pixel = uint32_t{p[0][i]} | uint32_t{p[1][i]} << 8 | uint32_t{p[2][i]} << 16 |
                           uint32_t{p[3][i]} << 24;
    std::memcpy(out + 4 * i, &pixel, sizeof pixel);
  }
}

}  // namespace

void InputLayout::WriteInput(std::span<const std::byte* const> planes, std::byte* input) const {
  const size_t pixels = plane_bytes / pixel_bytes;
  if (planes.size() == 1)
    std::memcpy(input, planes[0], plane_bytes);
  else if (pixel_bytes == 1 && planes.size() == 4 && pixels <= kInterleave4Max)
    Interleave4(planes, pixels, reinterpret_cast<uint8_t*>(input));
  else if (pixel_bytes == 1)
    Interleave<1>(planes, pixels, pixel_bytes, input);
  else if (pixel_bytes == 3)
    Interleave<3>(planes, pixels, pixel_bytes, input);
  else if (pixel_bytes == 4)
    Interleave<4>(planes, pixels, pixel_bytes, input);
  else
    Interleave<0>(planes, pixels, pixel_bytes, input);
}

ActionDistribution MakeDistribution(const ActionSpec& action) {
  if (!action.discrete) return ActionDistribution::TanhNormal(action.n);
  return action.sizes.empty() ? ActionDistribution::Categorical(action.n)
                              : ActionDistribution::Multi(action.sizes);
}

Acting::Acting(const AgentSetup& setup, const AgentNetworkConfig& network,
               const InputLayout& layout, const std::optional<ActionValueRule>& values)
    : layout_(layout),
      network_config_(network),
      distribution_(MakeDistribution(setup.environment.action)),
      by_values_(values),
      share_(setup.share),
      frames_(setup.slots, -1),
      versions_(setup.versions_kept, setup.versions_every) {
  const auto slots = static_cast<int64_t>(setup.slots), rows = static_cast<int64_t>(setup.rows_max);
  const auto depth = static_cast<int64_t>(layout.depth());
  const bool continuous = distribution_.continuous();
  shape_.observation_bytes = layout.plane_bytes;
  shape_.actions = shape_.action_values =
      continuous ? static_cast<size_t>(distribution_.components()) : 0;
  if (by_values_)
    shape_.values = static_cast<size_t>(network.outputs);
  else
    shape_.behaviour = static_cast<size_t>(distribution_.parameters());
  shape_.state = static_cast<size_t>(2 * network.lstm);
  shape_.history_bytes = static_cast<size_t>(depth - 1) * layout.plane_bytes;
  if (layout.stacked)
    planes_ = torch::zeros({slots, depth, static_cast<int64_t>(layout.plane_bytes)}, torch::kUInt8);
  states_ = torch::zeros({slots, 2 * network.lstm});
  inputs_ = layout.MakeInputs(rows);
  rewards_ = torch::zeros({1, rows});
  actions_ = torch::zeros({1, rows}, torch::kInt64);
  first_ = torch::zeros({1, rows}, torch::kBool);
  entering_ = torch::zeros({rows, 2 * network.lstm});
  uniforms_ = torch::full({rows, distribution_.components()}, 0.5);
}

std::byte* Acting::Plane(uint32_t slot, int64_t frame) {
  auto* all = static_cast<std::byte*>(planes_.data_ptr());
  const auto depth = static_cast<int64_t>(layout_.depth());
  return all + (static_cast<size_t>(slot) * layout_.depth() + static_cast<size_t>(frame % depth)) *
                   layout_.plane_bytes;
}

// The row's newest frame joins its slot's; `input` becomes the whole stack.
void Acting::TakeFrame(const InferenceRow& row, std::byte* input, std::byte* history) {
  const size_t bytes = layout_.plane_bytes;
  const std::byte* planes[kDepthMax] = {row.observation.data()};
  if (!layout_.stacked) return layout_.WriteInput({planes, 1}, input);
  const int64_t step = row.first ? 0 : frames_[row.slot] + 1;
  frames_[row.slot] = step;
  const auto depth = static_cast<int64_t>(layout_.depth());
  if (history != nullptr) {
    for (int64_t age = 1; age < depth; ++age, history += bytes) {
      if (age <= step)
        std::memcpy(history, Plane(row.slot, step - age), bytes);
      else
        std::memset(history, 0, bytes);
    }
  }
  std::memcpy(Plane(row.slot, step), row.observation.data(), bytes);
  for (int64_t plane = 0; plane < depth; ++plane) {
    const int64_t frame = StackedFrame(layout_.stack, step, plane);
    planes[plane] = frame >= 0 ? Plane(row.slot, frame) : nullptr;
  }
  layout_.WriteInput({planes, layout_.depth()}, input);
}

Status Acting::Infer(InferenceBatch& batch) {
  try {
    return Forward(batch);
  } catch (const std::exception& e) {  // torch's: no memory, above all
    return {Code::kInternal, "inference: " + FirstLine(e.what())};
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

void Acting::ActByValues(const AgentNetworkImpl::Output& output, InferenceBatch& batch) const {
  const size_t n = batch.rows.size();
  Copy(ActionValues(output, by_values_->dueling)[0].contiguous(), n, shape_.values, batch.values);
  for (size_t i = 0; i < n; ++i)
    batch.index[i] = by_values_->exploration.Choose(
        batch.rows[i], share_.first + batch.rows[i].slot, RowOf(batch.values, i, shape_.values));
}

void Acting::ActByDistribution(const AgentNetworkImpl::Output& output, int64_t rows,
                               InferenceBatch& batch) const {
  const size_t n = batch.rows.size();
  const Tensor parameters = output.policy[0].contiguous();
  const bool greedy = n > 0 && batch.rows[0].greedy;
  const Tensor chosen = greedy ? distribution_.Mode(parameters)
                               : distribution_.Sample(parameters, uniforms_.narrow(0, 0, rows));
  Copy(parameters, n, shape_.behaviour, batch.behaviour);
  Copy(output.value[0].contiguous(), n, 1, batch.values);
  if (distribution_.continuous()) {
    Copy(chosen.contiguous(), n, shape_.action_values, batch.action_values);
    Copy(distribution_.Squash(chosen).contiguous(), n, shape_.actions, batch.actions);
    return;
  }
  const Tensor indices = distribution_.Join(chosen).contiguous();
  for (size_t i = 0; i < n; ++i)
    batch.index[i] = static_cast<int32_t>(indices.data_ptr<int64_t>()[i]);
}

Status Acting::Forward(InferenceBatch& batch) {
  // one, as MakeLearner says: without it a new thread has as many as there are cores
  [[maybe_unused]] thread_local const bool one = (at::init_num_threads(), true);
  const torch::InferenceMode inference;
  const size_t n = batch.rows.size();
  const auto padded = static_cast<int64_t>(std::max(batch.padded, n));
  CHECK_LE(padded, inputs_.size(0));
  const AgentNetwork network = versions_.Get(batch.version);
  CHECK(network != nullptr) << "version " << batch.version << " is not kept";

  // 1 what the rows bring and what their slots remember
  auto* inputs = static_cast<std::byte*>(inputs_.data_ptr());
  auto* entering = entering_.data_ptr<float>();
  const auto* states = states_.data_ptr<float>();
  const size_t input_bytes = layout_.input_bytes(), state = shape_.state;
  const auto components = static_cast<size_t>(distribution_.components());
  for (size_t i = 0; i < n; ++i) {
    const InferenceRow& row = batch.rows[i];
    TakeFrame(row, inputs + i * input_bytes,
              row.keeps ? batch.history.data() + i * shape_.history_bytes : nullptr);
    rewards_.data_ptr<float>()[i] = row.reward;
    actions_.data_ptr<int64_t>()[i] = row.previous_action;
    first_.data_ptr<bool>()[i] = row.first;
    float* mine = entering + i * state;
    if (row.first)
      std::fill_n(mine, state, 0.0f);
    else
      std::copy_n(states + row.slot * state, state, mine);
    if (row.keeps)
      std::copy_n(mine, state, batch.state.begin() + static_cast<ptrdiff_t>(i * state));
    const CounterRng rng(row.key);
    for (size_t c = 0; c < components; ++c) {
      // away from 0 and 1, where inverse distribution functions end
      const double u = rng.Uniform(row.step * components + c);
      uniforms_.data_ptr<float>()[i * components + c] =
          static_cast<float>(std::clamp(u, 1e-7, 1 - 1e-7));
    }
  }

  // 2 one forward pass for all, and their actions
  const auto first_rows = [padded](const Tensor& x) { return x.narrow(0, 0, padded); };
  const auto out =
      network->forward({first_rows(inputs_).unsqueeze(0), rewards_.narrow(1, 0, padded),
                        actions_.narrow(1, 0, padded), first_.narrow(1, 0, padded)},
                       first_rows(entering_));
  if (by_values_)
    ActByValues(out, batch);
  else
    ActByDistribution(out, padded, batch);

  // 3 what each row may be used for, and what its slot remembers
  const Tensor leaving = out.state.contiguous();
  for (size_t i = 0; i < n; ++i) {
    const bool finite = AllFinite(RowOf(batch.behaviour, i, shape_.behaviour)) &&
                        AllFinite(RowOf(batch.values, i, shape_.values));
    batch.status[i] =
        finite ? InferenceBatch::RowStatus::kOk : InferenceBatch::RowStatus::kNotFinite;
    if (state > 0)
      std::copy_n(leaving.data_ptr<float>() + i * state, state,
                  states_.data_ptr<float>() + batch.rows[i].slot * state);
  }
  return Status::Ok();
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
  if (copy == nullptr) {
    copy = std::make_shared<AgentNetworkImpl>(network_config_);
    for (Tensor& parameter : copy->parameters()) parameter.set_requires_grad(false);
  }
  const auto from = network.parameters();
  auto to = copy->parameters();
  for (size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
  copy->Freeze();
  for (AgentNetwork& gone : versions_.Publish(version, std::move(copy))) {
    const MutexLock lock(mu_);
    spare_.push_back(std::move(gone));
  }
}

namespace {

// Row `i` of a tensor whose first dimension are slots; empty where there is no tensor.
std::span<char> RowOf(const Tensor& tensor, size_t i) {
  if (!tensor.defined() || tensor.numel() == 0) return {};
  const size_t bytes = tensor.nbytes() / static_cast<size_t>(tensor.size(0));
  return {static_cast<char*>(tensor.data_ptr()) + i * bytes, bytes};
}

std::string_view AsText(std::span<char> bytes) { return {bytes.data(), bytes.size()}; }

bool Fill(std::span<char> to, std::string_view from) {
  if (to.size() != from.size()) return false;
  std::copy(from.begin(), from.end(), to.begin());
  return true;
}

}  // namespace

std::string Acting::SaveSlots() const {
  std::vector<std::string> records;
  for (size_t i = 0; i < frames_.size(); ++i) {
    ByteWriter out;
    out.Put(frames_[i]).PutBytes(AsText(RowOf(planes_, i))).PutBytes(AsText(RowOf(states_, i)));
    records.push_back(out.Take());
  }
  return WriteSlotRecords(records);
}

Status Acting::RestoreSlots(std::string_view saved) {
  ASSIGN_OR_RETURN(const std::vector<std::string_view> records,
                   ReadSlotRecords(saved, share_, static_cast<uint32_t>(frames_.size())));
  for (size_t i = 0; i < frames_.size(); ++i) {
    ByteReader in(records[i]);
    frames_[i] = in.Get<int64_t>();
    const bool good = frames_[i] >= -1 && Fill(RowOf(planes_, i), in.GetBytes()) &&
                      Fill(RowOf(states_, i), in.GetBytes());
    if (!good || !in.AtEnd())
      return {Code::kBadData, "the saved frame stacks have another shape than this run's"};
  }
  return Status::Ok();
}

}  // namespace samara
