#include "rl/learner/minibatch_features.h"

#include <algorithm>

namespace samara {

MinibatchFeatures::MinibatchFeatures(const ImageTorso& torso, size_t rows, bool learned_sees_next)
    : torso_(torso),
      now_(torso.MakeMemory(rows)),
      next_(torso.MakeMemory(rows)),
      following_(learned_sees_next ? rows : 0),
      by_observation_(rows * torso.features()) {
  if (learned_sees_next) next_learned_.emplace(torso.MakeMemory(rows));
}

void MinibatchFeatures::Replace(const UnrollReplay& replay, std::span<const uint64_t> drawn,
                                std::span<const float> learned, std::span<const float> targets,
                                std::span<Transition> steps) {
  const InputLayout& layout = torso_.layout();
  const std::byte* all[kDepthMax];
  const auto planes = std::span(all).first(layout.depth());
  const auto before = [&](size_t i, std::byte* input) {
    replay.StackBefore(drawn[i], layout.stack, planes);
    layout.WriteInput(planes, input);
  };
  const auto after = [&](size_t i, std::byte* input) {
    replay.StackAfter(steps[i].last, layout.stack, planes);
    layout.WriteInput(planes, input);
  };
  torso_.Evaluate(learned, steps.size(), before, now_);
  torso_.Evaluate(targets, steps.size(), after, next_);
  if (next_learned_) torso_.Evaluate(learned, steps.size(), after, *next_learned_);
  for (size_t i = 0; i < steps.size(); ++i) {
    steps[i].observation = torso_.Observation(now_, i);
    steps[i].next_observation = torso_.Observation(next_, i);
    if (next_learned_) following_[i] = torso_.Observation(*next_learned_, i);
  }
}

void MinibatchFeatures::Give(ReplayMinibatch& minibatch) {
  std::ranges::fill(by_observation_, 0.0F);
  minibatch.next_learned = following_;
  minibatch.by_observation = by_observation_;
}

}  // namespace samara
