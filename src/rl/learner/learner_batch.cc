#include "rl/learner/learner_batch.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "rl/trajectory/frame_index.h"

namespace samara {

using torch::Tensor;

namespace {

// One input of a network: the observation of an entry, or the final one before it.
struct Observed {
  int64_t unroll, entry;
  int64_t step;             // since the stack began
  const std::byte* newest;  // its newest frame
};

// The inputs of a batch: entries time-major, then the final observations.
struct Inputs {
  std::vector<Observed> entries, finals;
};

Inputs InputsOf(std::span<const Unroll* const> unrolls, size_t plane_bytes) {
  Inputs inputs;
  const auto entries = static_cast<int64_t>(unrolls[0]->entries);
  const auto batch = static_cast<int64_t>(unrolls.size());
  for (int64_t t = 0; t < entries; ++t)
    for (int64_t b = 0; b < batch; ++b) {
      const Unroll& unroll = *unrolls[static_cast<size_t>(b)];
      const auto at = static_cast<size_t>(t);
      inputs.entries.push_back(
          {b, t, unroll.headers[at].episode_step, unroll.observations.data() + at * plane_bytes});
    }
  for (int64_t b = 0; b < batch; ++b) {
    const Unroll& unroll = *unrolls[static_cast<size_t>(b)];
    for (const Unroll::Final& final : unroll.finals) {
      if (final.entry == 0) continue;  // of a transition that an earlier unroll holds
      const int64_t step = int64_t{unroll.headers[final.entry - 1].episode_step} + 1;
      inputs.finals.push_back(
          {b, static_cast<int64_t>(final.entry), step, final.observation.data()});
    }
  }
  return inputs;
}

// Calls use(plane, age, frame) for each plane of an input; `age`: of its frame, 0 is the newest;
// negative: zeros.
template <typename F>
void EachPlane(const InputLayout& layout, int64_t step, const F& use) {
  for (int64_t plane = 0; plane < layout.stack.depth; ++plane) {
    const int64_t frame = StackedFrame(layout.stack, step, plane);
    use(plane, frame < 0 ? -1 : step - frame);
  }
}

void WriteStack(const Unroll& unroll, const InputLayout& layout, const Observed& observed,
                std::byte* input) {
  const size_t bytes = layout.plane_bytes;
  const std::byte* planes[kDepthMax] = {observed.newest};
  if (!layout.stacked) return layout.WriteInput({planes, 1}, input);
  const int64_t entry = observed.entry;
  EachPlane(layout, observed.step, [&](int64_t plane, int64_t age) {
    const std::byte*& from = planes[plane] = observed.newest;
    if (age < 0)
      from = nullptr;
    else if (age > entry)  // before the unroll
      from = unroll.history.data() + static_cast<size_t>(age - entry - 1) * bytes;
    else if (age > 0)
      from = unroll.observations.data() + static_cast<size_t>(entry - age) * bytes;
  });
  layout.WriteInput({planes, layout.depth()}, input);
}

void WriteStacks(std::span<const Unroll* const> unrolls, const InputLayout& layout,
                 const std::vector<Observed>& all, const Tensor& inputs) {
  auto* to = static_cast<std::byte*>(inputs.data_ptr());
  for (const Observed& observed : all) {
    WriteStack(*unrolls[static_cast<size_t>(observed.unroll)], layout, observed, to);
    to += layout.input_bytes();
  }
}

// A tensor of the batch besides its observations.
struct Field {
  Tensor LearnerBatch::*tensor;
  Upload::Array array;
};

std::vector<Field> Fields(std::span<const Unroll* const> unrolls, const ModelShape& shape,
                          bool continuous, size_t finals) {
  using B = LearnerBatch;
  const auto f = static_cast<int64_t>(unrolls[0]->entries),
             b = static_cast<int64_t>(unrolls.size());
  const auto k = static_cast<int64_t>(finals);
  const auto size = [](size_t n) { return static_cast<int64_t>(n); };
  const Upload::Array actions =
      continuous ? Upload::Array{{f, b, size(shape.action_values)}, torch::kFloat32}
                 : Upload::Array{{f, b, 1}, torch::kInt64};
  return {{&B::reward, {{f, b}, torch::kFloat32}},
          {&B::raw_reward, {{f, b}, torch::kFloat32}},
          {&B::previous_action, {{f, b}, torch::kInt64}},
          {&B::first, {{f, b}, torch::kBool}},
          {&B::terminated, {{f, b}, torch::kBool}},
          {&B::truncated, {{f, b}, torch::kBool}},
          {&B::action, actions},
          {&B::behaviour, {{f, b, size(shape.behaviour)}, torch::kFloat32}},
          {&B::state, {{b, size(shape.state)}, torch::kFloat32}},
          {&B::final_entry, {{k}, torch::kInt64}},
          {&B::final_unroll, {{k}, torch::kInt64}}};
}

void FillEntry(const Unroll& unroll, const ModelShape& shape, size_t at, int64_t i, bool continuous,
               LearnerBatch& out) {
  const EntryHeader& header = unroll.headers[at];
  out.reward.data_ptr<float>()[i] = header.reward;
  out.raw_reward.data_ptr<float>()[i] = header.raw_reward;
  out.previous_action.data_ptr<int64_t>()[i] = header.previous_action;
  out.first.data_ptr<bool>()[i] = header.episode_step == 0;
  out.terminated.data_ptr<bool>()[i] = header.terminated;
  out.truncated.data_ptr<bool>()[i] = header.truncated;
  const size_t row = static_cast<size_t>(i);
  if (continuous)
    std::copy_n(unroll.action_values.data() + at * shape.action_values, shape.action_values,
                out.action.data_ptr<float>() + row * shape.action_values);
  else
    out.action.data_ptr<int64_t>()[i] = header.action;
  std::copy_n(unroll.behaviour.data() + at * shape.behaviour, shape.behaviour,
              out.behaviour.data_ptr<float>() + row * shape.behaviour);
}

// Everything but the observations. REQUIRES: the tensors are there.
void Fill(std::span<const Unroll* const> unrolls, const ModelShape& shape, bool continuous,
          const std::vector<Observed>& finals, LearnerBatch& out) {
  const size_t entries = unrolls[0]->entries;
  for (size_t b = 0; b < unrolls.size(); ++b) {
    const Unroll& unroll = *unrolls[b];
    CHECK_EQ(unroll.entries, entries);
    std::copy(unroll.state.begin(), unroll.state.end(),
              out.state.data_ptr<float>() + b * shape.state);
    for (size_t t = 0; t < entries; ++t)
      FillEntry(unroll, shape, t, static_cast<int64_t>(t * unrolls.size() + b), continuous, out);
  }
  for (size_t k = 0; k < finals.size(); ++k) {
    out.final_entry.data_ptr<int64_t>()[k] = finals[k].entry;
    out.final_unroll.data_ptr<int64_t>()[k] = finals[k].unroll;
  }
}

}  // namespace

LearnerBatch MakeLearnerBatch(std::span<const Unroll* const> unrolls, const InputLayout& layout,
                              const ModelShape& shape, bool continuous, Tensor& inputs) {
  const auto batch = static_cast<int64_t>(unrolls.size());
  const auto entries = static_cast<int64_t>(unrolls[0]->entries);
  const Inputs observed = InputsOf(unrolls, layout.plane_bytes);
  LearnerBatch out;
  for (const auto& [tensor, array] : Fields(unrolls, shape, continuous, observed.finals.size()))
    out.*tensor = torch::empty(array.sizes, array.type);
  Fill(unrolls, shape, continuous, observed.finals, out);
  if (!inputs.defined() || inputs.size(0) != entries * batch)
    inputs = MakeInputs(layout, entries * batch);
  WriteStacks(unrolls, layout, observed.entries, inputs);
  out.observation = inputs.unflatten(0, {entries, batch});
  const Tensor last = MakeInputs(layout, static_cast<int64_t>(observed.finals.size()));
  WriteStacks(unrolls, layout, observed.finals, last);
  out.final_observation = last.unsqueeze(0);
  return out;
}

namespace {

// Where frames are among the planes that are sent: those of entries, the final ones, the frames
// before each unroll, zeros.
struct Planes {
  int64_t batch, entries, finals, before;  // before: frames of each unroll
  int64_t count() const { return entries * batch + finals + before * batch + 1; }
  int64_t Entry(int64_t b, int64_t t) const { return t * batch + b; }
  int64_t Before(int64_t b, int64_t i) const { return entries * batch + finals + b * before + i; }
  int64_t Zeros() const { return count() - 1; }
};

void WritePlanes(std::span<const Unroll* const> unrolls, const Inputs& inputs, const Tensor& to) {
  const auto bytes = static_cast<size_t>(to.size(1));
  auto* at = static_cast<std::byte*>(to.data_ptr());
  const auto write = [&](const std::byte* from, size_t size) {
    std::memcpy(at, from, size);
    at += size;
  };
  for (const auto* all : {&inputs.entries, &inputs.finals})
    for (const Observed& observed : *all) write(observed.newest, bytes);
  for (const Unroll* unroll : unrolls) write(unroll->history.data(), unroll->history.size());
  std::memset(at, 0, bytes);
}

// The planes of each input, into [inputs][depth].
void WriteIndices(const Inputs& inputs, const InputLayout& layout, const Planes& planes,
                  const Tensor& to) {
  auto* index = to.data_ptr<int64_t>();
  int64_t newest = 0;
  for (const auto* all : {&inputs.entries, &inputs.finals})
    for (const auto& [unroll, entry, step, frame] : *all) {
      const int64_t b = unroll, t = entry;
      EachPlane(layout, step, [&](int64_t, int64_t age) {
        *index++ = age < 0    ? planes.Zeros()
                   : age == 0 ? newest
                   : age <= t ? planes.Entry(b, t - age)
                              : planes.Before(b, age - t - 1);
      });
      ++newest;
    }
}

}  // namespace

LearnerBatch MakeLearnerBatch(std::span<const Unroll* const> unrolls, const InputLayout& layout,
                              const ModelShape& shape, bool continuous, Upload& upload) {
  const Inputs observed = InputsOf(unrolls, layout.plane_bytes);
  const auto finals = static_cast<int64_t>(observed.finals.size());
  const Planes planes{.batch = static_cast<int64_t>(unrolls.size()),
                      .entries = static_cast<int64_t>(unrolls[0]->entries),
                      .finals = finals,
                      .before = static_cast<int64_t>(layout.depth()) - 1};
  const int64_t all = planes.entries * planes.batch + finals;
  const std::vector<Field> fields = Fields(unrolls, shape, continuous, observed.finals.size());
  std::vector<Upload::Array> arrays = {
      {{planes.count(), static_cast<int64_t>(layout.plane_bytes)}, torch::kUInt8},
      {{layout.stacked ? all : 0, layout.stack.depth}, torch::kInt64}};
  for (const Field& field : fields) arrays.push_back(field.array);

  const std::vector<Tensor> host = upload.Begin(arrays);
  LearnerBatch out;
  for (size_t i = 0; i < fields.size(); ++i) out.*fields[i].tensor = host[2 + i];
  Fill(unrolls, shape, continuous, observed.finals, out);
  WritePlanes(unrolls, observed, host[0]);
  if (layout.stacked) WriteIndices(observed, layout, planes, host[1]);

  const std::vector<Tensor> there = upload.Send();
  for (size_t i = 0; i < fields.size(); ++i) out.*fields[i].tensor = there[2 + i];
  const Tensor inputs =
      StackedPlanes(layout, layout.stacked ? there[0].index_select(0, there[1].flatten())
                                           : there[0].narrow(0, 0, all));
  out.observation = inputs.narrow(0, 0, all - finals).unflatten(0, {planes.entries, planes.batch});
  out.final_observation = inputs.narrow(0, all - finals, finals).unsqueeze(0);
  return out;
}

AgentNetworkImpl::Output EvaluateFinals(const LearnerBatch& batch, AgentNetworkImpl& network,
                                        const Tensor& states) {
  const torch::NoGradGuard no_gradient;
  const Tensor at = batch.final_entry - 1, unroll = batch.final_unroll;
  const auto pick = [&](const Tensor& x, const Tensor& t) { return x.index({t, unroll}); };
  const int64_t count = at.size(0);
  const Tensor state =
      states.defined() ? pick(states, at) : torch::zeros({count, 0}, batch.reward.options());
  const Tensor action = pick(batch.action, at).select(-1, 0).to(torch::kInt64);
  return network.forward(
      {batch.final_observation, pick(batch.reward, batch.final_entry).unsqueeze(0),
       action.unsqueeze(0), torch::zeros({1, count}, batch.first.options())},
      state);
}

}  // namespace samara
