// Episodes of a generation that is not finished yet, as they are kept on disk, so that a generation
// of hours survives a stop or a crash in its middle.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/status.h"
#include "evo/evaluate/evaluator.h"

namespace samara {

// Values live on disk. 2 was validation with episodes keyed by the rank of the candidate.
enum class Phase : uint8_t { kPopulation = 1, kTest = 3, kValidation = 4 };

// A result is a pure function of the run's configuration and (generation, phase, index of the
// task): member * ga.episodes + episode; individual * ga.validation_episodes + episode, the old
// elite being the individual after the last member; episode.
struct FinishedEpisodes {
  uint64_t generation = 0;  // the one that was being played: 1 is the first
  Phase phase = Phase::kPopulation;
  ResultsByIndex results;

  // Versioned; 25 bytes an episode, and what it recorded.
  std::string Encode() const;
  static Result<FinishedEpisodes> Decode(std::string_view bytes);  // kBadData
};

}  // namespace samara
