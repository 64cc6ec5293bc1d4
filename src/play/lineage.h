// Where an evolution's best candidate comes from, rebuilt from the journal of its run.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/status.h"
#include "evo/genome/genome.h"

namespace samara {

// An ancestor of an elite that is a genome: each has one mutation more than the one before.
struct Ancestor {
  // The first whose recorded state has it; 0: the run began from it. None: it was born and replaced
  // between two records of an algorithm that numbers no members.
  std::optional<uint64_t> generation = {};
  std::optional<uint64_t> individual = {};  // its number in the population of that generation
  uint64_t frames = 0;                      // counted frames of the run after that generation
  double fitness = std::numeric_limits<double>::quiet_NaN();  // in that generation
  size_t mutations = 0;
  uint64_t key = 0;  // of its last mutation; without mutations: of its initial parameters
  float power = 0;   // of its last mutation
};
// History of a vector of parameters, such as the centre of an evolution strategy, after each
// generation.
struct PastCentre {
  uint64_t generation = 0;  // 0: before the first
  uint64_t frames = 0;
  double mean = std::numeric_limits<double>::quiet_NaN();  // of its validation
  double length = 0;                                       // Euclidean norms: of the parameters,
  // of the difference to the generation before; NaN: that was lost with the end of the journal
  double step = std::numeric_limits<double>::quiet_NaN();
  double distance = 0;  // to the first
};

struct Lineage {
  std::string algorithm;
  uint64_t generation = 0;  // whose best candidate it is
  double best_mean = 0;     // of its validation
  // one of the two, oldest first
  std::vector<Ancestor> ancestors;
  std::vector<PastCentre> centres;
};
// `generation` -1: the last. Every ancestor's genome is checked to be a prefix of its child's, and,
// where the algorithm numbers its members, to be a member of the population that is rebuilt from
// the generation before; kBadData names the first that is missing. Otherwise as FindGeneration.
Result<Lineage> ReadLineage(const Path& run, int64_t generation = -1);

}  // namespace samara
