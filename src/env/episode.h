// SPDX-License-Identifier: Apache-2.0 OR MIT
// One episode: what decides it, what it came to, how a run makes its episodes, when to end early.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace samara {

// Recording of an episode: one row a step.
enum class RecordKind : uint8_t {
  kNothing = 0,
  kPositions = 1,     // the body's position after the step (Environment::Position), float32
  kMemory = 2,        // the simulator's memory after the step (EnvironmentSpec::memory bytes)
  kObservations = 3,  // the observation before the step
};

// Everything that decides an episode besides the actions: the same EpisodeSpec and actions give the
// same bits.
struct EpisodeSpec {
  uint64_t seed = 0;  // key of the episode's random stream (core/rng.h)
  int32_t noops = 0;  // Atari: no-op frames after reset, drawn by the caller
  int64_t frames_max =
      0;  // truncate after so many emulated frames; 0 = the environment's own limit
  RecordKind record = RecordKind::kNothing;  // changes no result
  float action_noise =
      0;               // standard deviation of noise on continuous actions, which are in [-1, 1]
  bool signs = false;  // the result's fitness is the sum of the signs of the rewards
};

// Result of one episode.
struct EpisodeResult {
  double fitness = 0;  // undiscounted, unclipped return; summed in step order
  uint64_t frames = 0;
  uint32_t steps = 0;
  bool truncated = false;
  bool done = false;   // the episode came to its end; results that are not done are never posted
  double novelty = 0;  // of a recording that was measured and dropped (WorkSource::Reduced)
  std::vector<float> position{};       // of the body at the end; empty: the environment has none
  std::vector<std::byte> recording{};  // rows as EpisodeSpec::record says; empty: nothing recorded
  bool operator==(const EpisodeResult&) const = default;
};

// Returns what a step with this reward adds to the fitness of its episode.
inline double FitnessOf(double reward, const EpisodeSpec& episode) {
  return episode.signs ? (reward > 0 ? 1 : reward < 0 ? -1 : 0) : reward;
}

// How episodes of a run are made from keys: the preset's no-op draw and frame caps.
struct EpisodeRule {
  std::function<int32_t(uint64_t key)> noops;  // empty: none
  int64_t frames_max = 0;                      // population and validation
  int64_t frames_max_test = 0;
  RecordKind record = RecordKind::kNothing;  // of population and validation
  EpisodeSpec Make(uint64_t key, bool test) const {
    return {key, noops ? noops(key) : 0, test ? frames_max_test : frames_max,
            test ? RecordKind::kNothing : record};
  }
};

// True once the work shall end early; called from any thread, once per step.
using StopToken = std::function<bool()>;

}  // namespace samara
