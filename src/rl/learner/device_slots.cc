// Slots' memory on a device: what rows hold crosses in one copy, and frames join and leave stacks
// by their places.
#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "nn/torch/torch_device.h"
#include "rl/learner/slot_memory.h"
#include "rl/trajectory/frame_index.h"

namespace samara {
namespace {

using torch::Tensor;

class DeviceSlots final : public SlotMemory {
 public:
  DeviceSlots(const InputLayout& layout, const Shape& shape, const torch::Device& device)
      : SlotMemory(layout, shape, device, /*more=*/1), upload_(device) {
    // the largest batch's room, so that what later ones send is always at the same place
    kept_ = shape.rows_max;
    upload_.Begin(Arrays(kept_));
    upload_.Send();
    Synchronize(device);  // another stream goes on
  }

  void Send(InferenceBatch& batch, int64_t padded) override {
    CHECK_LE(padded, int64_t{shape_.rows_max});
    kept_ = std::ranges::count_if(batch.rows, &InferenceRow::keeps);
    const auto host = upload_.Begin(Arrays(padded));
    FillRows(batch, padded, host);
    there_ = upload_.Send();
  }

  RowInputs Take() override {
    Tensor frames = there_[kFrame];
    if (layout_.stacked) {
      planes_.index_copy_(0, there_[kNewest], frames);
      frames = planes_.index_select(0, there_[kStack].flatten());
    }
    return {.input = {StackedPlanes(layout_, frames).unsqueeze(0), there_[kReward].unsqueeze(0),
                      there_[kAction].unsqueeze(0), there_[kFirst].unsqueeze(0)},
            .entering =
                states_.index_select(0, there_[kSlot]).masked_fill(there_[kFirst].view({-1, 1}), 0),
            .uniforms = there_[kUniform]};
  }

  void Leave(const Tensor& state) override {
    if (shape_.state > 0) states_.index_copy_(0, there_[kSlot], state);
  }

  KeptRows Keep(const RowInputs& rows) const override {
    KeptRows kept;
    if (kept_ > 0 && shape_.state > 0) kept.state = rows.entering.index_select(0, there_[kKept]);
    if (kept_ > 0 && depth() > 1)
      kept.history = planes_.index_select(0, there_[kHistory].flatten());
    return kept;
  }

 private:
  // Parts that a batch sends, in this order: those last whose size does not follow from its rows.
  enum Sent : uint8_t {
    kFrame,
    kReward,
    kAction,
    kFirst,
    kUniform,
    kSlot,
    kStack,
    kNewest,
    kKept,
    kHistory
  };
  int64_t zeros() const { return planes_.size(0) - 1; }  // the plane of zeros
  int64_t depth() const { return static_cast<int64_t>(layout_.depth()); }

  std::vector<Upload::Array> Arrays(int64_t rows) const {
    const int64_t stacks = layout_.stacked ? rows : 0;
    return {
        {{rows, static_cast<int64_t>(layout_.plane_bytes)}, torch::kUInt8},
        {{rows}, torch::kFloat32},
        {{rows}, torch::kInt64},
        {{rows}, torch::kBool},
        {{rows, shape_.components}, torch::kFloat32},
        {{rows}, torch::kInt64},
        {{stacks, depth()}, torch::kInt64},    // planes of each input
        {{stacks}, torch::kInt64},             // the plane that the frame becomes
        {{kept_}, torch::kInt64},              // rows
        {{kept_, depth() - 1}, torch::kInt64}  // planes, the newest first
    };
  }

  void FillRows(const InferenceBatch& batch, int64_t padded, const std::vector<Tensor>& host) {
    const auto n = static_cast<int64_t>(batch.rows.size());
    int64_t kept = 0;
    for (int64_t i = 0; i < n; ++i) {
      const InferenceRow& row = batch.rows[static_cast<size_t>(i)];
      std::memcpy(host[kFrame].data_ptr<uint8_t>() + i * host[kFrame].size(1),
                  row.observation.data(), layout_.plane_bytes);
      host[kReward].data_ptr<float>()[i] = row.reward;
      host[kAction].data_ptr<int64_t>()[i] = row.previous_action;
      host[kFirst].data_ptr<bool>()[i] = row.first;
      host[kSlot].data_ptr<int64_t>()[i] = row.slot;
      FillUniforms(row, {host[kUniform].data_ptr<float>() + i * shape_.components,
                         static_cast<size_t>(shape_.components)});
      const int64_t step = layout_.stacked ? NextFrame(row) : 0;
      if (layout_.stacked) FillStack(row, step, i, host);
      if (row.keeps) FillKept(row, step, i, kept++, host);
    }
    FillPadding(n, padded, host);
  }

  void FillStack(const InferenceRow& row, int64_t step, int64_t i,
                 const std::vector<Tensor>& host) const {
    host[kNewest].data_ptr<int64_t>()[i] = Plane(row.slot, step);
    for (int64_t plane = 0; plane < depth(); ++plane) {
      const int64_t frame = StackedFrame(layout_.stack, step, plane);
      host[kStack].data_ptr<int64_t>()[i * depth() + plane] =
          frame >= 0 ? Plane(row.slot, frame) : zeros();
    }
  }

  void FillKept(const InferenceRow& row, int64_t step, int64_t i, int64_t kept,
                const std::vector<Tensor>& host) const {
    host[kKept].data_ptr<int64_t>()[kept] = i;
    for (int64_t age = 1; age < depth(); ++age)
      host[kHistory].data_ptr<int64_t>()[kept * (depth() - 1) + age - 1] =
          age <= step ? Plane(row.slot, step - age) : zeros();
  }

  // Rows of the padding slot, whose input and state are zeros; their frame becomes the plane of
  // zeros.
  void FillPadding(int64_t begin, int64_t end, const std::vector<Tensor>& host) const {
    if (begin == end) return;
    const auto fill = [&](Sent part, const torch::Scalar& value) {
      host[part].narrow(0, begin, end - begin).fill_(value);
    };
    for (const Sent part : {kFrame, kReward, kAction}) fill(part, 0);
    fill(kFirst, true);
    fill(kUniform, 0.5);
    fill(kSlot, int64_t{shape_.slots});
    if (layout_.stacked) fill(kStack, zeros()), fill(kNewest, zeros());
  }

  Upload upload_;
  int64_t kept_;               // rows of this batch that keep
  std::vector<Tensor> there_;  // what it sent, as Sent names it
};

}  // namespace

std::unique_ptr<SlotMemory> MakeDeviceSlots(const InputLayout& layout,
                                            const SlotMemory::Shape& shape,
                                            const torch::Device& device) {
  return std::make_unique<DeviceSlots>(layout, shape, device);
}

}  // namespace samara
