// SPDX-License-Identifier: Apache-2.0 OR MIT
// The interface of environments: a native C++ class on a thread of the learner process, or a
// Python simulator in an actor process (which fills the same structures through the slot protocol).
//
// Contract: one step answers one action; no action is discarded
// and no fake transition is emitted; an episode ends as terminated or truncated (never both), and
// the observation written by that step is the final one of the episode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "env/episode.h"
#include "env/goal.h"

namespace samara {

enum class DType : uint8_t { kUint8 = 0, kFloat32 = 1 };
constexpr size_t SizeOf(DType type) { return type == DType::kUint8 ? 1 : 4; }

struct ObservationSpec {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;  // one observation without batch or stack: {84, 84} or {17}
  size_t elements() const {
    size_t n = 1;
    for (int64_t d : shape) n *= static_cast<size_t>(d);
    return n;
  }
  size_t bytes() const { return elements() * SizeOf(dtype); }
  // [rows][columns], gray, or [rows][columns][channels]; else a vector.
  bool image() const { return shape.size() == 2 || shape.size() == 3; }
};

struct ActionSpec {
  bool discrete = true;
  int64_t n = 0;                 // discrete: number of actions; box: dimensions
  std::vector<float> low, high;  // box: the simulator's bounds; policies act in [-1, 1]
  // Box: a policy's numbers are passed on as they are, logits for example. For native environments
  // that evolution plays; the others force them into [-1, 1].
  bool raw = false;
  // Discrete with several parts that are chosen independently (MultiDiscrete): how many choices
  // each has. Their product is n, and an action's index counts the last part fastest (C order).
  std::vector<int64_t> sizes{};  // empty: one part
  // Box: number of evenly spaced values, the bounds included, among which a policy chooses for each
  // dimension; 0: a policy's outputs are the values.
  int64_t bins = 0;
  // Number of a policy's outputs: one per choice of each part or dimension with bins, or per
  // dimension.
  int64_t outputs() const {
    if (bins > 0) return n * bins;
    if (sizes.empty()) return n;
    int64_t sum = 0;
    for (int64_t size : sizes) sum += size;
    return sum;
  }
};

struct EnvironmentSpec {
  std::string id;       // "atari/frostbite", "native/CartPole-v1", "gym/LunarLander-v3"
  std::string version;  // of the simulator and preset: part of the run's identity
  ObservationSpec observation;
  ActionSpec action;
  GoalSpec goal;                          // size 0: no goals
  std::vector<std::string> action_names;  // discrete, when the simulator has names
  int64_t frames_per_step = 1;            // emulated frames of one ordinary step
  int64_t steps_max = 0;                  // truncation limit of the environment itself; 0 = none
  // Mean return from which on the task counts as solved, as published for it; NaN: none.
  double solved = std::numeric_limits<double>::quiet_NaN();
  // Whether one episode that reaches `solved` is enough: nothing in the task is random.
  bool solved_once = false;
  int64_t position = 0;  // numbers that Environment::Position writes; 0 = it has none
  int64_t memory = 0;    // bytes of the simulator's memory that an episode can record; 0 = none
  // Pictures for people, when the environment was made to render: RGB, row-major, up to
  // `render_frames` a step.
  int64_t render_height = 0, render_width = 0, render_frames = 0;
  double render_rate = 30;  // pictures a second, as the task moves in real time
};

struct Action {
  int32_t index = 0;              // discrete
  std::span<const float> values;  // box: each in [-1, 1] times the bounds; borrowed for the call
};

struct StepResult {
  double reward = 0;
  bool terminated = false;
  bool truncated = false;  // only when not terminated
  bool life_lost = false;  // the episode may go on
  uint32_t frames = 0;     // emulated frames of this step (1 where frames mean nothing)
  // The observation begins a new sequence, independent of the previous one: the state of a
  // recurrent policy is reset.
  bool new_sequence = false;
};

// A native environment. One thread at a time; the caller checked action and span sizes.
class Environment {
 public:
  virtual ~Environment() = default;
  virtual const EnvironmentSpec& spec() const = 0;
  // Starts an episode and writes its first observation (spec().observation.bytes() bytes).
  virtual void Reset(const EpisodeSpec& episode, std::span<std::byte> observation) = 0;
  virtual StepResult Step(const Action& action, std::span<std::byte> observation) = 0;
  // The picture of the current state, render_height x render_width x 3 bytes; false when it cannot.
  virtual bool Render(std::span<std::byte>) { return false; }
  // Where the body is, in the units of the environment (a maze's (x, y)): what behaviours and maps
  // are made of. `out` has spec().position numbers.
  virtual void Position(std::span<float> /*out*/) const {}
  // The whole state of a running episode, such that RestoreState on another instance continues with
  // the same bits. Empty when unsupported.
  virtual std::string SaveState() const { return {}; }
  virtual Status RestoreState(const std::string&) {
    return {Code::kConfig, spec().id + ": this environment cannot restore a state"};
  }
};

using EnvironmentFactory = std::function<Result<std::unique_ptr<Environment>>()>;

}  // namespace samara
