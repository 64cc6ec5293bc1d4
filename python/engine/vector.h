// SPDX-License-Identifier: Apache-2.0 OR MIT
// Environments for programs that step them together: what samara.make_vec (python/samara/vector.py)
// binds. One slot of a fleet for each environment, actions in, rows of results out.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fleet/named_environment.h"
#include "nn/frame_stack.h"

namespace samara {

// Begins the next episode after the last step of one (gymnasium.vector.AutoresetMode).
enum class Autoreset : uint8_t {
  kNextStep,  // the next step begins an episode, and its action is ignored
  kSameStep,  // the same step also begins one; the last observation is kept apart
  kDisabled,  // the caller begins one
};

struct VectorOptions {
  std::string environment;  // FindEnvironment
  std::string preset = "ale-v5";
  GymOptions gym;
  uint32_t environments = 1;
  std::optional<uint32_t> workers;  // threads or processes; none: chosen
  int64_t stack = -1;               // frames of an observation; -1: the preset's, else 0: no stack
  int64_t frames_max = 0;           // of an episode; 0: the environment's own limit
  Autoreset autoreset = Autoreset::kNextStep;
  ActorFleetOptions actors;
};

// One result for each row, in the caller's memory.
struct VectorRows {
  std::span<int32_t> environment;
  std::span<std::byte> observation;  // [rows][observation_bytes()]
  std::span<double> reward;
  std::span<bool> terminated, truncated, life_lost;
  std::span<int32_t> frames;
};

// Thread safety: none. Errors are thrown as Error: kConfig for what does not fit, kUnavailable for
// environments that keep failing.
class EnvironmentVector {
 public:
  explicit EnvironmentVector(const VectorOptions& options);
  ~EnvironmentVector();

  const EnvironmentSpec& spec() const { return fleet_->spec(); }
  int64_t stack() const { return stack_ ? stack_->depth : 0; }
  size_t observation_bytes() const {
    return spec().observation.bytes() * static_cast<size_t>(std::max<int64_t>(1, stack()));
  }
  uint32_t workers() const { return workers_; }
  size_t outstanding() const { return outstanding_; }  // results that Receive will return

  // Ends what these environments play and begins episodes. With a key in `seeds` the environment
  // counts its episodes from 0 again; episode n of seed s is the n-th of `samara eval --seed s`.
  // REQUIRES: no result of them is outstanding.
  void Reset(std::span<const int32_t> environments, std::span<const std::optional<uint64_t>> seeds);
  // One action for each: `index`, or [environments][spec().action.n] values in [-1, 1].
  void Send(std::span<const int32_t> environments, std::span<const int32_t> index,
            std::span<const float> values);
  // Waits up to `timeout` for results until all rows are filled; returns how many are filled, from
  // `filled` on. `by_environment`: row e is of environment e.
  size_t Receive(const VectorRows& rows, size_t filled, bool by_environment,
                 std::chrono::microseconds timeout);
  // The newest observation of an environment that has one: nothing of it is outstanding.
  void Observe(uint32_t environment, std::span<std::byte> out) const;
  // The last observation of the episode that ended with the newest result (kSameStep).
  std::span<const std::byte> final_observation(uint32_t environment) const {
    return slots_.at(environment).final_observation;
  }

 private:
  enum class Phase : uint8_t { kNew, kBusy, kAnswered, kEnded };
  struct Slot {
    Phase phase = Phase::kNew;
    uint64_t seed = 0, episode = 0;  // of its next episode
    uint64_t number = 0;             // of its episode in the fleet
    bool resetting = false;          // Begin is outstanding
    std::optional<SlotEvent> ended;  // kSameStep: the result whose observation is outstanding
    std::vector<std::byte> final_observation;
    std::vector<std::byte> planes;  // the last frames: frame f in f % depth
    int64_t frames = 0;             // of this episode
  };

  void CheckMaySend(std::span<const int32_t> environments) const;
  void Begin(uint32_t environment, bool again = false);  // again: the episode before
  // False where the event is no result: another one will come.
  bool Take(SlotEvent& event);
  void TakeLost(SlotEvent& event);
  void PushFrame(uint32_t environment, bool first);
  void WriteObservation(uint32_t environment, std::span<std::byte> out) const;
  void WriteRow(const SlotEvent& event, const VectorRows& rows, size_t row) const;

  const VectorOptions options_;
  NamedEnvironment named_;
  uint32_t workers_ = 0;
  std::unique_ptr<Fleet> fleet_;
  const pid_t made_in_ = ::getpid();
  std::optional<FrameStackRule> stack_;
  bool has_fire_ = false;
  uint64_t number_ = 0;  // of the fleet's next episode
  size_t outstanding_ = 0;
  std::vector<Slot> slots_;
  std::vector<SlotAction> actions_;
  std::vector<SlotEvent> events_;
};

}  // namespace samara
