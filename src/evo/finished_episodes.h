// Episodes of a generation that is not finished yet, as they are kept on disk, so that a generation
// of hours survives a stop or a crash in its middle (DESIGN 9.5 says the rest).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/status.h"
#include "evo/evaluate.h"

namespace samara {

enum class Phase : uint8_t { kPopulation = 1, kValidation = 2, kTest = 3 };  // values live on disk

// A result is a pure function of the run's configuration and (generation, phase, index of the
// task).
struct FinishedEpisodes {
  uint64_t generation = 0;  // the one that was being played: 1 is the first
  Phase phase = Phase::kPopulation;
  ResultsByIndex results;

  std::string Encode() const;                                      // versioned, 25 bytes an episode
  static Result<FinishedEpisodes> Decode(std::string_view bytes);  // kBadData
};

}  // namespace samara
