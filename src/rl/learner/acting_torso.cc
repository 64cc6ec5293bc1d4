#include "rl/learner/acting_torso.h"

#include <cstring>

#include "core/bytes.h"
#include "rl/learner/slot_frames.h"

namespace samara {

ActingTorso::ActingTorso(const ImageTorso& torso, uint32_t slots, size_t rows_max)
    : torso_(torso),
      layout_(torso.layout()),
      memory_(torso.MakeMemory(rows_max)),
      planes_(slots * SlotBytes()),
      steps_(slots, -1) {}

ActingTorso::Features::Features(ActingTorso& acting, std::span<const float> parameters,
                                InferenceBatch& batch)
    : batch_(batch) {
  for (const InferenceRow& row : batch.rows) frames_.push_back(row.observation);
  const auto write = [&](size_t i, std::byte* input) { acting.WriteInput(batch, i, input); };
  acting.torso_.Evaluate(parameters, batch.rows.size(), write, acting.memory_);
  for (size_t i = 0; i < batch.rows.size(); ++i)
    batch.rows[i].observation = acting.torso_.Observation(acting.memory_, i);
}

ActingTorso::Features::~Features() {
  for (size_t i = 0; i < frames_.size(); ++i) batch_.rows[i].observation = frames_[i];
}

void ActingTorso::WriteInput(InferenceBatch& batch, size_t i, std::byte* input) {
  const InferenceRow& row = batch.rows[i];
  const std::byte* plane = row.observation.data();
  if (!layout_.stacked) return layout_.WriteInput({&plane, 1}, input);
  int64_t& step = steps_[row.slot];
  step = row.first ? 0 : step + 1;
  std::byte* history = batch.history.data() + i * (layout_.depth() - 1) * layout_.plane_bytes;
  SlotFrames{layout_, planes_.data()}.Push(row.slot, step, row.observation, input,
                                           row.keeps ? history : nullptr);
}

std::vector<std::string> ActingTorso::Save() const {
  std::vector<std::string> records;
  for (size_t slot = 0; slot < steps_.size(); ++slot) {
    const auto* planes = reinterpret_cast<const char*>(planes_.data());
    records.push_back(
        ByteWriter().Put(steps_[slot]).PutBytes({planes + slot * SlotBytes(), SlotBytes()}).Take());
  }
  return records;
}

Status ActingTorso::Restore(const std::vector<std::string_view>& records) {
  std::vector<std::byte> planes(planes_.size());
  std::vector<int64_t> steps(steps_.size());
  for (size_t slot = 0; slot < steps.size(); ++slot) {
    ByteReader in(records[slot]);
    steps[slot] = in.Get<int64_t>();
    const std::string_view saved = in.GetBytes();
    if (!in.AtEnd() || saved.size() != SlotBytes() || steps[slot] < -1)
      return {Code::kBadData, "the saved frame stacks have another shape than this run's"};
    std::memcpy(planes.data() + slot * SlotBytes(), saved.data(), saved.size());
  }
  planes_ = std::move(planes), steps_ = std::move(steps);
  return Status::Ok();
}

}  // namespace samara
