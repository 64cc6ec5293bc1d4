#include "rl/replay/hindsight.h"

#include <algorithm>
#include <cstring>

namespace samara {
namespace {

// Observations are stored at multiples of their size, which is that of whole floats.
std::span<const float> Floats(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

}  // namespace

Transition Hindsight::At(const UnrollReplay& replay, uint64_t step, const ReturnRule& returns,
                         const CounterRng& rng, size_t row) {
  if (rule_.fraction == 0 || rng.Uniform(2 * row) >= rule_.fraction)
    return replay.At(step, returns);
  const GoalSpec& rule = rule_.goal;
  const uint64_t ahead = rng.UniformInt(2 * row + 1, replay.StepsFrom(step));
  const auto goal = rule.Achieved(Floats(replay.After(replay.Later(step, ahead))));
  // An end at the goal that was pursued needs no exception: the new one was achieved before it, or
  // by the same step.
  const auto outcome = [&](uint64_t at) {
    const bool reached = rule.Reached(rule.Achieved(Floats(replay.After(at))), goal);
    return UnrollReplay::Outcome{static_cast<float>(reached ? rule.reached : rule.missed),
                                 replay.terminated(at) || (rule.terminates && reached)};
  };
  Transition transition = replay.At(step, returns, outcome);
  transition.observation = WithGoal(transition.observation, goal, 2 * row);
  transition.next_observation = WithGoal(transition.next_observation, goal, 2 * row + 1);
  return transition;
}

std::span<const std::byte> Hindsight::WithGoal(std::span<const std::byte> observation,
                                               std::span<const float> goal, size_t copy) {
  const auto whole = std::span(copies_).subspan(copy * rule_.observation, rule_.observation);
  std::memcpy(whole.data(), observation.data(), observation.size());
  std::ranges::copy(goal, whole.last(goal.size()).begin());
  return std::as_bytes(whole);
}

}  // namespace samara
