#include "rl/learner/slot_memory.h"

#include <algorithm>

#include "core/bytes.h"
#include "rl/trajectory/frame_index.h"

namespace samara {

using torch::Tensor;

SlotMemory::SlotMemory(const InputLayout& layout, const Shape& shape, const torch::Device& device,
                       int64_t more)
    : layout_(layout), shape_(shape), frames_(shape.slots, -1) {
  const auto slots = static_cast<int64_t>(shape.slots);
  const auto depth = static_cast<int64_t>(layout.depth());
  const auto plane = static_cast<int64_t>(layout.plane_bytes);
  if (layout.stacked)
    planes_ =
        torch::zeros({slots * depth + more, plane}, torch::dtype(torch::kUInt8).device(device));
  states_ = torch::zeros({slots + more, shape.state}, torch::device(device));
}

void FillUniforms(const InferenceRow& row, std::span<float> uniforms) {
  const CounterRng rng(row.key);
  for (size_t c = 0; c < uniforms.size(); ++c) {
    // away from 0 and 1, where inverse distribution functions end
    const double u = rng.Uniform(row.step * uniforms.size() + c);
    uniforms[c] = static_cast<float>(std::clamp(u, 1e-7, 1 - 1e-7));
  }
}

namespace {

// Slot `i` of a tensor of the CPU whose rows are the slots', equally many each; empty where there
// is no tensor.
std::span<char> OfSlot(const Tensor& tensor, size_t i, size_t slots) {
  if (!tensor.defined() || tensor.numel() == 0) return {};
  const size_t bytes = tensor.nbytes() / slots;
  return {static_cast<char*>(tensor.data_ptr()) + i * bytes, bytes};
}

std::string_view AsText(std::span<char> bytes) { return {bytes.data(), bytes.size()}; }

bool Fill(std::span<char> to, std::string_view from) {
  if (to.size() != from.size()) return false;
  std::copy(from.begin(), from.end(), to.begin());
  return true;
}

// The first rows, those of slots, on the CPU.
Tensor OfSlots(const Tensor& tensor, int64_t rows) {
  return tensor.defined() ? tensor.narrow(0, 0, rows).cpu() : tensor;
}

}  // namespace

std::string SlotMemory::Save() const {
  const size_t slots = frames_.size();
  const auto rows = static_cast<int64_t>(slots), depth = static_cast<int64_t>(layout_.depth());
  const Tensor planes = OfSlots(planes_, rows * depth), states = OfSlots(states_, rows);
  std::vector<std::string> records;
  for (size_t i = 0; i < slots; ++i) {
    ByteWriter out;
    out.Put(frames_[i])
        .PutBytes(AsText(OfSlot(planes, i, slots)))
        .PutBytes(AsText(OfSlot(states, i, slots)));
    records.push_back(out.Take());
  }
  return WriteSlotRecords(records);
}

Status SlotMemory::Restore(std::string_view saved, const SlotShare& share) {
  const torch::NoGradGuard no_gradient;
  const size_t slots = frames_.size();
  const auto rows = static_cast<int64_t>(slots), depth = static_cast<int64_t>(layout_.depth());
  ASSIGN_OR_RETURN(const std::vector<std::string_view> records,
                   ReadSlotRecords(saved, share, static_cast<uint32_t>(slots)));
  const Tensor planes = OfSlots(planes_, rows * depth), states = OfSlots(states_, rows);
  for (size_t i = 0; i < slots; ++i) {
    ByteReader in(records[i]);
    frames_[i] = in.Get<int64_t>();
    const bool good = frames_[i] >= -1 && frames_[i] <= kStackStepsMax &&
                      Fill(OfSlot(planes, i, slots), in.GetBytes()) &&
                      Fill(OfSlot(states, i, slots), in.GetBytes());
    if (!good || !in.AtEnd())
      return {Code::kBadData, "the saved frame stacks have another shape than this run's"};
  }
  if (planes.defined()) planes_.narrow(0, 0, rows * depth).copy_(planes);
  states_.narrow(0, 0, rows).copy_(states);
  return Status::Ok();
}

}  // namespace samara
