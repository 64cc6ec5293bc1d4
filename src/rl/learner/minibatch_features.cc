#include "rl/learner/minibatch_features.h"

#include <algorithm>

namespace samara {

MinibatchFeatures::MinibatchFeatures(const ImageTorso& torso, const UnrollReplay& replay,
                                     size_t rows, bool learned_sees_next, int64_t random_shift)
    : torso_(torso),
      random_shift_(random_shift),
      stack_(replay.MakeStackMemory()),
      now_(torso.MakeMemory(rows, /*backward=*/true)),
      next_(torso.MakeMemory(rows, /*backward=*/false)),
      features_(rows * torso.features()),
      next_features_(features_.size()),
      next_learned_features_(learned_sees_next ? features_.size() : 0),
      next_learned_(learned_sees_next ? rows : 0),
      by_observation_(features_.size()) {}

ImageShift MinibatchFeatures::ShiftAt(const CounterRng& shifts, uint64_t index) const {
  if (random_shift_ == 0) return {};
  const auto draw = [&](uint64_t i) {
    return static_cast<int64_t>(
               shifts.UniformInt(i, 2 * static_cast<uint64_t>(random_shift_) + 1)) -
           random_shift_;
  };
  return {.down = draw(index), .right = draw(index + 1)};
}

void MinibatchFeatures::Replace(const UnrollReplay& replay, std::span<const uint64_t> drawn,
                                std::span<const float> learned, std::span<const float> targets,
                                std::span<const float> statistics, const CounterRng& shifts,
                                std::span<Transition> steps) {
  const InputLayout& layout = torso_.layout();
  const std::byte* all[kDepthMax];
  const auto planes = std::span(all).first(layout.depth());
  const auto before = [&](size_t i, std::byte* input) {
    replay.StackBefore(drawn[i], layout.stack, stack_, planes);
    layout.WriteInput(planes, input);
    return ShiftAt(shifts, 4 * i);
  };
  const auto after = [&](size_t i, std::byte* input) {
    replay.StackAfter(steps[i].last, layout.stack, stack_, planes);
    layout.WriteInput(planes, input);
    return ShiftAt(shifts, 4 * i + 2);
  };
  const size_t rows = steps.size();
  torso_.SetInputs(rows, statistics, before, now_);
  torso_.Evaluate(learned, rows, now_, features_);
  torso_.SetInputs(rows, statistics, after, next_);
  torso_.Evaluate(targets, rows, next_, next_features_);
  if (!next_learned_.empty()) torso_.Evaluate(learned, rows, next_, next_learned_features_);
  for (size_t i = 0; i < rows; ++i) {
    steps[i].observation = torso_.Observation(features_, i);
    steps[i].next_observation = torso_.Observation(next_features_, i);
    if (!next_learned_.empty()) next_learned_[i] = torso_.Observation(next_learned_features_, i);
  }
}

void MinibatchFeatures::Bind(ReplayMinibatch& minibatch) {
  std::ranges::fill(by_observation_, 0.0F);
  minibatch.next_learned = next_learned_;
  minibatch.by_observation = by_observation_;
}

}  // namespace samara
