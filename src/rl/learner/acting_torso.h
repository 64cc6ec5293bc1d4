// Inference from images behind a torso: what slots remember of them, and the features of a batch.
#pragma once

#include <string>
#include <string_view>
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
  // of their stacks instead. REQUIRES: there are rows.
  class Features {
   public:
    Features(ActingTorso& acting, std::span<const float> parameters, InferenceBatch& batch);
    ~Features();
    Features(const Features&) = delete;
    Features& operator=(const Features&) = delete;

   private:
    InferenceBatch& batch_;
    std::vector<std::span<const std::byte>> frames_;
  };

  // A record a slot.
  std::vector<std::string> Save() const;
  // kBadData: of another shape; nothing has changed.
  Status Restore(const std::vector<std::string_view>& records);

 private:
  size_t SlotBytes() const { return layout_.stacked ? layout_.input_bytes() : 0; }
  void WriteInput(InferenceBatch& batch, size_t row, std::byte* input);

  const ImageTorso& torso_;
  const InputLayout layout_;
  ImageTorso::Memory memory_;
  std::vector<std::byte> planes_;  // of stacks, [slots][depth][plane_bytes]
  std::vector<int64_t> steps_;     // by slot: number of the newest frame since the stack began
};

}  // namespace samara
