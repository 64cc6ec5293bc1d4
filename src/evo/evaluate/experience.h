// SPDX-License-Identifier: Apache-2.0 OR MIT
// States that an individual saw while it was evaluated: what safe mutations look at
// (evo/algorithms/safe_mutation.h). They are kept while an episode is played for its return, so
// they cost no step of an environment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace samara {

// Up to kExperienceStates network inputs, oldest first.
struct Experience {
  std::vector<float> inputs;  // one state after the other
  // For a recurrent network: the states are consecutive, and a state with 1 begins a sequence, with
  // a memory of zeros. The first does. Empty for other networks.
  std::vector<uint8_t> begins;
  // Returns the first eight bytes of a SHA-256 over both, the same on every machine.
  uint64_t Hash() const;
  std::string Encode() const;
  static Result<Experience> Decode(std::string_view bytes);  // kBadData
};

constexpr size_t kExperienceStates = 100;
constexpr size_t kExperienceRing = 400;  // the newest states of an episode, of which they are drawn

// Keeps the newest states of one episode after the other. One thread at a time.
class ExperienceRecorder {
 public:
  // `input`: floats of a state.
  ExperienceRecorder(size_t input, bool recurrent) : input_(input), recurrent_(recurrent) {}
  void Start();  // an episode
  // `begins`: the memory of a recurrent network restarts with this state.
  void See(const float* state, bool begins);
  // States of the episode so far, drawn without replacement by `key`; of a recurrent network
  // consecutive ones, from a place that is drawn. Empty when it saw none.
  Experience Draw(uint64_t key) const;

 private:
  const size_t input_;
  const bool recurrent_;
  std::vector<float> ring_;
  std::vector<uint8_t> begins_;
  size_t seen_ = 0;  // since Start
};

}  // namespace samara
