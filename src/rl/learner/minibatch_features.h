// The features of a minibatch of images behind a torso, in place of its observations.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "rl/learner/image_torso.h"
#include "rl/learner/replay_algorithm.h"
#include "rl/replay/unroll_replay.h"

namespace samara {

// Thread safety: none.
class MinibatchFeatures {
 public:
  // `torso`: borrowed. learned_sees_next: as the algorithm has it.
  MinibatchFeatures(const ImageTorso& torso, size_t rows, bool learned_sees_next);

  // Makes features of the stacks of `steps`, which are those `drawn` of the replay: of observations
  // by the learned torso, of what follows by the targets'. Views, until the next call.
  void Replace(const UnrollReplay& replay, std::span<const uint64_t> drawn,
               std::span<const float> learned, std::span<const float> targets,
               std::span<Transition> steps);
  // What the gradient of `minibatch` needs of them and is to write.
  void Give(ReplayMinibatch& minibatch);
  // The gradient of the learned torso after that.
  void Backward(std::span<const float> learned, std::span<float> gradient) {
    torso_.Backward(learned, by_observation_, now_, gradient);
  }

 private:
  const ImageTorso& torso_;
  ImageTorso::Memory now_, next_;
  std::optional<ImageTorso::Memory> next_learned_;     // what follows, by the learned torso
  std::vector<std::span<const std::byte>> following_;  // its rows
  std::vector<float> by_observation_;                  // [rows][features]
};

}  // namespace samara
