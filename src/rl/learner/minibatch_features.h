// The features of a minibatch of images behind a torso, in place of its observations.
#pragma once

#include <span>
#include <vector>

#include "core/rng.h"
#include "rl/learner/image_torso.h"
#include "rl/learner/replay_algorithm.h"
#include "rl/replay/unroll_replay.h"

namespace samara {

// Thread safety: none.
class MinibatchFeatures {
 public:
  // `torso`: borrowed. learned_sees_next: as the algorithm has it. `random_shift`: pixels.
  MinibatchFeatures(const ImageTorso& torso, const UnrollReplay& replay, size_t rows,
                    bool learned_sees_next, int64_t random_shift);

  // Makes features of the stacks of `steps`, which are those `drawn` of the replay: of observations
  // by the learned torso, of what follows by the targets'. Views, until the next call.
  // `statistics`: as ImageTorso::SetInputs has them. `shifts`: draws of how far each image is
  // moved.
  void Replace(const UnrollReplay& replay, std::span<const uint64_t> drawn,
               std::span<const float> learned, std::span<const float> targets,
               std::span<const float> statistics, const CounterRng& shifts,
               std::span<Transition> steps);
  // Sets what `minibatch` has of them: next_learned, by_observation, with zeros.
  void Bind(ReplayMinibatch& minibatch);
  // The gradient of the learned torso after that.
  void Backward(std::span<const float> learned, std::span<float> gradient) {
    torso_.Backward(learned, by_observation_, now_, gradient);
  }

 private:
  // How far an image is moved, by the draws from `index` on.
  ImageShift ShiftAt(const CounterRng& shifts, uint64_t index) const;

  const ImageTorso& torso_;
  const int64_t random_shift_;
  std::vector<std::byte> stack_;   // as the replay makes it
  ImageTorso::Memory now_, next_;  // of observations, and of what follows
  // [rows][features], the last one by the learned torso
  std::vector<float> features_, next_features_, next_learned_features_;
  std::vector<std::span<const std::byte>> next_learned_;  // rows of the last one
  std::vector<float> by_observation_;                     // [rows][features]
};

}  // namespace samara
