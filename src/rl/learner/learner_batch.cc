#include "rl/learner/learner_batch.h"

#include "core/check.h"
#include "rl/trajectory/frame_index.h"

namespace samara {

using torch::Tensor;

namespace {

// The input of which `newest` is the newest frame, at entry `entry` (where the frames before it
// lie) and `step` steps after the stack began.
void WriteStack(const Unroll& unroll, const InputLayout& layout, int64_t entry, int64_t step,
                const std::byte* newest, std::byte* input) {
  const size_t bytes = layout.plane_bytes;
  const std::byte* planes[kDepthMax] = {newest};
  if (!layout.stacked) return layout.WriteInput({planes, 1}, input);
  for (int64_t plane = 0; plane < layout.stack.depth; ++plane) {
    const int64_t frame = StackedFrame(layout.stack, step, plane);
    const int64_t age = step - frame;
    const std::byte*& from = planes[plane] = newest;
    if (frame < 0)
      from = nullptr;
    else if (age > entry)  // before the unroll
      from = unroll.history.data() + static_cast<size_t>(age - entry - 1) * bytes;
    else if (age > 0)
      from = unroll.observations.data() + static_cast<size_t>(entry - age) * bytes;
  }
  layout.WriteInput({planes, layout.depth()}, input);
}

}  // namespace

LearnerBatch MakeLearnerBatch(std::span<const Unroll* const> unrolls, const InputLayout& layout,
                              const ModelShape& shape, bool continuous, Tensor& inputs) {
  const auto batch = static_cast<int64_t>(unrolls.size());
  const auto entries = static_cast<int64_t>(unrolls[0]->entries);
  const size_t plane = layout.plane_bytes, input_bytes = layout.input_bytes();
  if (!inputs.defined() || inputs.size(0) != entries * batch)
    inputs = layout.MakeInputs(entries * batch);
  LearnerBatch out;
  const auto flags = [&] { return torch::zeros({entries, batch}, torch::kBool); };
  out.reward = torch::empty({entries, batch}), out.raw_reward = torch::empty({entries, batch});
  out.previous_action = torch::empty({entries, batch}, torch::kInt64);
  out.first = flags(), out.terminated = flags(), out.truncated = flags();
  const auto components = static_cast<int64_t>(shape.action_values);
  out.action = continuous ? torch::empty({entries, batch, components})
                          : torch::empty({entries, batch, 1}, torch::kInt64);
  const auto behaviour = static_cast<int64_t>(shape.behaviour);
  out.behaviour = torch::empty({entries, batch, behaviour});
  out.state = torch::empty({batch, static_cast<int64_t>(shape.state)});
  size_t finals = 0;
  for (int64_t b = 0; b < batch; ++b) {
    const Unroll& unroll = *unrolls[static_cast<size_t>(b)];
    CHECK_EQ(static_cast<int64_t>(unroll.entries), entries);
    std::copy(unroll.state.begin(), unroll.state.end(),
              out.state.data_ptr<float>() + b * out.state.size(1));
    for (int64_t t = 0; t < entries; ++t) {
      const auto at = static_cast<size_t>(t);
      const EntryHeader& header = unroll.headers[at];
      const int64_t i = t * batch + b;
      const std::byte* newest = unroll.observations.data() + at * plane;
      std::byte* input =
          static_cast<std::byte*>(inputs.data_ptr()) + static_cast<size_t>(i) * input_bytes;
      WriteStack(unroll, layout, t, header.episode_step, newest, input);
      out.reward.data_ptr<float>()[i] = header.reward;
      out.raw_reward.data_ptr<float>()[i] = header.raw_reward;
      out.previous_action.data_ptr<int64_t>()[i] = header.previous_action;
      out.first.data_ptr<bool>()[i] = header.episode_step == 0;
      out.terminated.data_ptr<bool>()[i] = header.terminated;
      out.truncated.data_ptr<bool>()[i] = header.truncated;
      if (continuous)
        std::copy_n(unroll.action_values.data() + at * shape.action_values, components,
                    out.action.data_ptr<float>() + i * components);
      else
        out.action.data_ptr<int64_t>()[i] = header.action;
      std::copy_n(unroll.behaviour.data() + at * shape.behaviour, behaviour,
                  out.behaviour.data_ptr<float>() + i * behaviour);
    }
    finals += unroll.finals.size();
  }
  out.observation = inputs.unflatten(0, {entries, batch});

  Tensor last = layout.MakeInputs(static_cast<int64_t>(finals));
  out.final_entry = torch::empty({static_cast<int64_t>(finals)}, torch::kInt64);
  out.final_unroll = torch::empty_like(out.final_entry);
  int64_t k = 0;
  for (int64_t b = 0; b < batch; ++b) {
    const Unroll& unroll = *unrolls[static_cast<size_t>(b)];
    for (const Unroll::Final& final : unroll.finals) {
      const auto entry = static_cast<int64_t>(final.entry);
      if (entry == 0) continue;  // of a transition that an earlier unroll holds
      std::byte* input =
          static_cast<std::byte*>(last.data_ptr()) + static_cast<size_t>(k) * input_bytes;
      const int64_t step = int64_t{unroll.headers[static_cast<size_t>(entry - 1)].episode_step} + 1;
      WriteStack(unroll, layout, entry, step, final.observation.data(), input);
      out.final_entry.data_ptr<int64_t>()[k] = entry;
      out.final_unroll.data_ptr<int64_t>()[k] = b;
      ++k;
    }
  }
  out.final_entry = out.final_entry.narrow(0, 0, k),
  out.final_unroll = out.final_unroll.narrow(0, 0, k);
  out.final_observation = last.narrow(0, 0, k).unsqueeze(0);
  return out;
}

AgentNetworkImpl::Output EvaluateFinals(const LearnerBatch& batch, AgentNetworkImpl& network,
                                        const Tensor& states) {
  const torch::NoGradGuard no_gradient;
  const Tensor at = batch.final_entry - 1, unroll = batch.final_unroll;
  const auto pick = [&](const Tensor& x, const Tensor& t) { return x.index({t, unroll}); };
  const Tensor state = states.defined() ? pick(states, at) : torch::zeros({at.size(0), 0});
  const Tensor action = pick(batch.action, at).select(-1, 0).to(torch::kInt64);
  return network.forward(
      {batch.final_observation, pick(batch.reward, batch.final_entry).unsqueeze(0),
       action.unsqueeze(0), torch::zeros({1, at.size(0)}, torch::kBool)},
      state);
}

}  // namespace samara
