#include "rl/learner/acting_torso.h"

#include <cstring>

#include "core/bytes.h"
#include "rl/learner/slot_frames.h"
#include "rl/trajectory/frame_index.h"

namespace samara {

ActingTorso::ActingTorso(const ImageTorso& torso, uint32_t slots, size_t rows_max)
    : torso_(torso),
      layout_(torso.layout()),
      memory_(torso.MakeMemory(rows_max, /*backward=*/false)),
      features_(rows_max * torso.features()),
      slots_{.planes = std::vector<std::byte>(slots * SlotBytes()),
             .steps = std::vector<int64_t>(slots, -1)} {}

ActingTorso::Features::Features(ActingTorso& acting, std::span<const float> parameters,
                                std::span<const float> statistics, InferenceBatch& batch)
    : batch_(batch) {
  for (const InferenceRow& row : batch.rows) observations_.push_back(row.observation);
  const auto write = [&](size_t i, std::byte* input) {
    acting.WriteInput(batch, i, input);
    return ImageShift();
  };
  const size_t rows = batch.rows.size();
  acting.torso_.SetInputs(rows, statistics, write, acting.memory_);
  acting.torso_.Evaluate(parameters, rows, acting.memory_, acting.features_);
  for (size_t i = 0; i < rows; ++i)
    batch.rows[i].observation = acting.torso_.Observation(acting.features_, i);
}

ActingTorso::Features::~Features() {
  for (size_t i = 0; i < observations_.size(); ++i) batch_.rows[i].observation = observations_[i];
}

void ActingTorso::WriteInput(InferenceBatch& batch, size_t i, std::byte* input) {
  const InferenceRow& row = batch.rows[i];
  const std::byte* plane = row.observation.data();
  if (!layout_.stacked) return layout_.WriteInput({&plane, 1}, input);
  int64_t& step = slots_.steps[row.slot];
  step = row.first ? 0 : step + 1;
  std::byte* history = batch.history.data() + i * (layout_.depth() - 1) * layout_.plane_bytes;
  SlotFrames{layout_, slots_.planes.data()}.Push(row.slot, step, row.observation, input,
                                                 row.keeps ? history : nullptr);
}

std::vector<std::string> ActingTorso::Save() const {
  std::vector<std::string> records;
  const auto* planes = reinterpret_cast<const char*>(slots_.planes.data());
  for (size_t slot = 0; slot < slots_.steps.size(); ++slot)
    records.push_back(ByteWriter()
                          .Put(slots_.steps[slot])
                          .PutBytes({planes + slot * SlotBytes(), SlotBytes()})
                          .Take());
  return records;
}

Result<ActingTorso::Slots> ActingTorso::Parse(const std::vector<std::string_view>& records) const {
  Slots slots = slots_;
  for (size_t slot = 0; slot < slots.steps.size(); ++slot) {
    ByteReader in(records[slot]);
    slots.steps[slot] = in.Get<int64_t>();
    const std::string_view saved = in.GetBytes();
    if (!in.AtEnd() || saved.size() != SlotBytes() || slots.steps[slot] < -1 ||
        slots.steps[slot] > kStackStepsMax)
      return Status(Code::kBadData, "the saved frame stacks have another shape than this run's");
    std::memcpy(slots.planes.data() + slot * SlotBytes(), saved.data(), saved.size());
  }
  return slots;
}

}  // namespace samara
