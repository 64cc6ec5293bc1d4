// Inference from images behind a torso: what slots remember of them, and the features of a batch.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rl/inference/model.h"
#include "rl/learner/image_torso.h"

namespace samara {

// Thread safety: one thread at a time.
class ActingTorso {
 public:
  // `torso`: borrowed.
  ActingTorso(const ImageTorso& torso, uint32_t slots, size_t rows_max);

  // The rows' frames join their slots'; while this lives, the rows' observations are the features
  // of their stacks instead. `statistics`: as ImageTorso::SetInputs has them. REQUIRES: there are
  // rows.
  class Features {
   public:
    Features(ActingTorso& acting, std::span<const float> parameters,
             std::span<const float> statistics, InferenceBatch& batch);
    ~Features();
    Features(const Features&) = delete;
    Features& operator=(const Features&) = delete;

   private:
    InferenceBatch& batch_;
    std::vector<std::span<const std::byte>> observations_;  // that were there
  };

  // What the slots remember.
  struct Slots {
    std::vector<std::byte> planes;  // of stacks, [slots][depth][plane_bytes]
    std::vector<int64_t> steps;     // by slot: number of the newest frame since the stack began
  };
  // A record a slot.
  std::vector<std::string> Save() const;
  // Reads them. kBadData: of another shape.
  Result<Slots> Parse(const std::vector<std::string_view>& records) const;
  // REQUIRES: of Parse.
  void Restore(Slots slots) { slots_ = std::move(slots); }

 private:
  size_t SlotBytes() const { return layout_.stacked ? layout_.input_bytes() : 0; }
  void WriteInput(InferenceBatch& batch, size_t row, std::byte* input);

  const ImageTorso& torso_;
  const InputLayout layout_;
  ImageTorso::Memory memory_;
  std::vector<float> features_;  // [rows][features]
  Slots slots_;
};

}  // namespace samara
