// Whole episodes of a fleet whose actors choose the actions themselves, next to their simulators.
//
// The caller writes the parameters of a policy to where the actor reads them, and the slot answers
// once, at the end of the episode. Thread safety: as fleet.h says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/status.h"
#include "env/episode.h"

namespace samara {

class PolicyPlayer {
 public:
  virtual ~PolicyPlayer() = default;
  // Once, before the other methods. `description` says how the parameters are read
  // (evo/evaluate/policy.h). `recording_bytes`: room for what an episode records.
  virtual Status InstallPolicies(const std::string& description, size_t parameter_bytes,
                                 size_t recording_bytes = 0) = 0;
  // Parameters of the slot's policy; 64-byte aligned. To be written while the slot is idle.
  virtual std::span<std::byte> parameters(uint32_t slot) = 0;
  // Rows of the slot's last episode, as EpisodeSpec::record said, one a step; until the next Play.
  virtual std::span<const std::byte> recording(uint32_t slot) = 0;
  // Instead of Fleet's Begin and Act; `random` plays uniformly at random without a policy.
  virtual void Play(uint32_t slot, uint64_t episode, const EpisodeSpec& spec, bool random) = 0;
  // Ends the episode early: its event comes soon, kLost unless the episode was ending.
  virtual void Abandon(uint32_t slot) = 0;
};

}  // namespace samara
