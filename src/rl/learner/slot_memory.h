// Memory of every slot for inference, the frame stack and the recurrent state, on the device that
// computes: a row holds its newest frame only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/rng.h"
#include "nn/torch/agent_network.h"
#include "rl/inference/model.h"
#include "rl/learner/input_tensors.h"
#include "rl/trajectory/slot_records.h"

namespace samara {

// A batch's rows as a network sees them, on its device, until the next batch.
struct RowInputs {
  AgentNetworkImpl::Input input;     // [1][rows]
  torch::Tensor entering, uniforms;  // [rows][state], [rows][components] in (0, 1)
};

// Values that unrolls store of the rows that keep, in their order; undefined where the batch has
// them already.
struct KeptRows {
  torch::Tensor state;    // [kept][state]
  torch::Tensor history;  // uint8 [kept][history_bytes]
};

// The row's draws of an action: a uniform number in (0, 1) for each component.
void FillUniforms(const InferenceRow& row, std::span<float> uniforms);

// Thread safety: one thread at a time.
class SlotMemory {
 public:
  struct Shape {
    uint32_t slots = 1, rows_max = 1;
    int64_t state = 0, components = 1;
  };
  virtual ~SlotMemory() = default;

  // Sends what the rows hold to the device. Rows from the batch's own on to `padded` are of no
  // slot. REQUIRES: at most rows_max.
  virtual void Send(InferenceBatch& batch, int64_t padded) = 0;
  // The newest frames of the rows sent last join their slots'. These operations, and Leave's, are
  // the same for all batches of so many rows, and read and write at the same places.
  virtual RowInputs Take() = 0;
  // `state` [padded][state] leaves the rows sent last, and enters their slots' next.
  virtual void Leave(const torch::Tensor& state) = 0;
  virtual KeptRows Keep(const RowInputs& rows) const = 0;

  // One record a slot (rl/trajectory/slot_records.h), the same for every device.
  std::string Save() const;
  Status Restore(std::string_view saved, const SlotShare& share);  // kBadData

 protected:
  // `more`: padding slots, behind the others.
  SlotMemory(const InputLayout& layout, const Shape& shape, const torch::Device& device,
             int64_t more);
  // Number of planes of the slots, behind which there is one of zeros where `more` is 1.
  int64_t Plane(uint32_t slot, int64_t frame) const {
    const auto depth = static_cast<int64_t>(layout_.depth());
    return int64_t{slot} * depth + frame % depth;
  }
  // Which of its episode's frames a row's is; counted here.
  int64_t NextFrame(const InferenceRow& row) {
    return frames_[row.slot] = row.first ? 0 : frames_[row.slot] + 1;
  }

  const InputLayout layout_;
  const Shape shape_;
  std::vector<int64_t> frames_;  // by slot: since the stack began; the newest frame's number
  torch::Tensor planes_;  // uint8 [planes][plane_bytes]: the last frames; undefined: not stacked
  torch::Tensor states_;  // [slots][state]
};

std::unique_ptr<SlotMemory> MakeHostSlots(const InputLayout& layout,
                                          const SlotMemory::Shape& shape);
// On a device; on the CPU too, by the same operations of torch.
std::unique_ptr<SlotMemory> MakeDeviceSlots(const InputLayout& layout,
                                            const SlotMemory::Shape& shape,
                                            const torch::Device& device);

}  // namespace samara
