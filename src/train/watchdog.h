// Whether a learning run makes progress: its learner and its inference both turn. Thread safety:
// healthy may be called from any thread, the rest from the learner's.
#pragma once

#include <atomic>
#include <utility>

#include "core/clock.h"

namespace samara {

class Watchdog {
 public:
  // Not healthy after so long without a turn of either.
  explicit Watchdog(double seconds) : seconds_(seconds) {}

  void Start() {
    learner_turned_ = inference_turned_ = Now();
    watches_ = true;
  }
  void Stop() { watches_ = false; }
  // The learner has turned; inference too if its thread's time so far has grown.
  void Turn(double inference_seconds) {
    learner_turned_ = Now();
    if (std::exchange(inference_seconds_, inference_seconds) != inference_seconds)
      inference_turned_ = Now();
  }
  bool healthy() const {
    return !watches_ ||
           (SecondsSince(learner_turned_) < seconds_ && SecondsSince(inference_turned_) < seconds_);
  }

 private:
  const double seconds_;
  std::atomic<bool> watches_{false};
  std::atomic<SteadyTime> learner_turned_{SteadyTime()}, inference_turned_{SteadyTime()};
  double inference_seconds_ = 0;
};

}  // namespace samara
