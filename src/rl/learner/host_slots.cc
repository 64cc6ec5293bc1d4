// Slots' memory on the CPU: plain copies, pixel by pixel.
#include <algorithm>

#include "core/check.h"
#include "rl/learner/slot_frames.h"
#include "rl/learner/slot_memory.h"

namespace samara {
namespace {

using torch::Tensor;

class HostSlots final : public SlotMemory {
 public:
  HostSlots(const InputLayout& layout, const Shape& shape)
      : SlotMemory(layout, shape, torch::kCPU, /*more=*/0) {
    const auto rows = static_cast<int64_t>(shape.rows_max);
    inputs_ = MakeInputs(layout, rows);
    rewards_ = torch::zeros({1, rows});
    actions_ = torch::zeros({1, rows}, torch::kInt64);
    first_ = torch::zeros({1, rows}, torch::kBool);
    entering_ = torch::zeros({rows, shape.state});
    uniforms_ = torch::full({rows, shape.components}, 0.5);
  }

  void Send(InferenceBatch& batch, int64_t padded) override {
    CHECK_LE(padded, inputs_.size(0));
    batch_ = &batch, padded_ = padded;
  }

  RowInputs Take() override {
    for (size_t i = 0; i < batch_->rows.size(); ++i) TakeRow(*batch_, i);
    const auto rows = [this](const Tensor& x) { return x.narrow(0, 0, padded_); };
    const auto columns = [this](const Tensor& x) { return x.narrow(1, 0, padded_); };
    return {{rows(inputs_).unsqueeze(0), columns(rewards_), columns(actions_), columns(first_)},
            rows(entering_),
            rows(uniforms_)};
  }

  void Leave(const Tensor& state) override {
    if (shape_.state == 0) return;
    const auto size = static_cast<size_t>(shape_.state);
    const Tensor leaving = state.contiguous();
    for (size_t i = 0; i < batch_->rows.size(); ++i)
      std::copy_n(leaving.data_ptr<float>() + i * size, size,
                  states_.data_ptr<float>() + batch_->rows[i].slot * size);
  }

  // Take has written them into the batch.
  KeptRows Keep(const RowInputs&) const override { return {}; }

 private:
  void TakeRow(InferenceBatch& batch, size_t i) {
    const InferenceRow& row = batch.rows[i];
    const auto state = static_cast<size_t>(shape_.state);
    const size_t history = (layout_.depth() - 1) * layout_.plane_bytes;
    TakeFrame(row, static_cast<std::byte*>(inputs_.data_ptr()) + i * layout_.input_bytes(),
              row.keeps ? batch.history.data() + i * history : nullptr);
    rewards_.data_ptr<float>()[i] = row.reward;
    actions_.data_ptr<int64_t>()[i] = row.previous_action;
    first_.data_ptr<bool>()[i] = row.first;
    float* mine = entering_.data_ptr<float>() + i * state;
    if (row.first)
      std::fill_n(mine, state, 0.0f);
    else
      std::copy_n(states_.data_ptr<float>() + row.slot * state, state, mine);
    if (row.keeps)
      std::copy_n(mine, state, batch.state.begin() + static_cast<ptrdiff_t>(i * state));
    const auto components = static_cast<size_t>(shape_.components);
    FillUniforms(row, {uniforms_.data_ptr<float>() + i * components, components});
  }

  // The row's newest frame joins its slot's; `input` becomes the whole stack.
  void TakeFrame(const InferenceRow& row, std::byte* input, std::byte* history) {
    const std::byte* plane = row.observation.data();
    if (!layout_.stacked) return layout_.WriteInput({&plane, 1}, input);
    const SlotFrames frames{layout_, static_cast<std::byte*>(planes_.data_ptr())};
    frames.Push(row.slot, NextFrame(row), row.observation, input, history);
  }

  InferenceBatch* batch_ = nullptr;  // sent last
  int64_t padded_ = 0;
  // by row
  Tensor inputs_, rewards_, actions_, first_, entering_, uniforms_;
};

}  // namespace

std::unique_ptr<SlotMemory> MakeHostSlots(const InputLayout& layout,
                                          const SlotMemory::Shape& shape) {
  return std::make_unique<HostSlots>(layout, shape);
}

}  // namespace samara
