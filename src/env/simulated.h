// Base of native simulators: episode length, truncation, the order of a step, saved states. A
// simulator supplies its initial state, its dynamics and its observation; nothing else.
//
// Thread safety: one thread at a time per instance.
// Invariants: (1) a result is never terminated and truncated; (2) steps_ counts the actions
// answered since the last reset; (3) everything that decides the future of an episode is in steps_,
// limit_ and what Save returns.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/rng.h"
#include "env/interface.h"

namespace samara {

class SimulatedEnvironment : public Environment {
 public:
  const EnvironmentSpec& spec() const final { return spec_; }
  void Reset(const EpisodeSpec& episode, std::span<std::byte> observation) final;
  StepResult Step(const Action& action, std::span<std::byte> observation) final;
  std::string SaveState() const final;
  Status RestoreState(const std::string& saved) final;

  // Starts an episode at `start` (as long as initial_state()) instead of a drawn state: how tests
  // meet another implementation of the same task.
  void ResetTo(std::span<const double> start, std::span<std::byte> observation);
  // The state variables of the moment, in the order that ResetTo takes them.
  virtual std::vector<double> CurrentState() const = 0;

 protected:
  struct Outcome {
    double reward;
    bool terminated;
    bool new_sequence = false;  // StepResult::new_sequence
  };

  // `state_variables`: how many numbers Draw writes and Place reads.
  SimulatedEnvironment(EnvironmentSpec spec, size_t state_variables)
      : spec_(std::move(spec)), start_(state_variables) {}

  // Draws the initial state of an episode.
  virtual void Draw(const CounterRng& rng, std::span<double> start) const = 0;
  // Forgets everything of the last episode and continues from `start`.
  virtual void Place(std::span<const double> start) = 0;
  virtual Outcome Advance(const Action& action) = 0;
  // One of these, as spec().observation.dtype says.
  virtual void Observe(std::span<float> /*observation*/) const {}
  virtual void ObserveBytes(std::span<std::byte> /*observation*/) const {}
  // In Advance: true if the episode is truncated after this step unless it terminates.
  bool LastStep() const { return limit_ > 0 && steps_ + 1 >= limit_; }
  // All that Advance reads besides the action; Load gets what Save of an equal spec returned.
  virtual std::vector<double> Save() const { return CurrentState(); }
  virtual void Load(std::span<const double> state) { Place(state); }

 private:
  void Begin(int64_t limit, std::span<std::byte> observation);
  void Write(std::span<std::byte> observation) const;

  const EnvironmentSpec spec_;
  std::vector<double>
      start_;  // written by Draw, read by Place; kept to allocate nothing per episode
  int64_t steps_ = 0;
  int64_t limit_ = 0;  // truncation after so many steps; 0 = none
};

// An action value of [-1, 1] on the simulator's scale. Values outside are clamped; one that
// is not a number counts as the middle.
double Rescale(float value, double low, double high);

// A state variable that is an index below `size`; 0 when it is none, as in a forged saved state.
int64_t Index(double variable, int64_t size);

}  // namespace samara
