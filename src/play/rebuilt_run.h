// An evolution's run made again from its folder, without playing: its algorithm in the state of any
// generation, and the individuals of that state.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/experiment.h"
#include "evo/evaluate/evaluator.h"
#include "storage/evolution_journal.h"
#include "storage/run_folder.h"

namespace samara {

class RebuiltRun {
 public:
  // kNoInput and kBadData as RunFolder::Open; kConfig for a learning run.
  static Result<std::unique_ptr<RebuiltRun>> Open(const Path& run);

  // The algorithm after `generations`, the run's first ones (ReadGenerations); none: before the
  // first. It lives no longer than this object.
  Result<std::unique_ptr<EvolutionAlgorithm>> At(
      std::span<const GenerationRecord> generations) const;
  // Number of members of the population that the last of `generations` played, which
  // FindIndividual finds by number; 0: they cannot be rebuilt. REQUIRES: one generation or more.
  Result<uint64_t> MembersOfLast(std::span<const GenerationRecord> generations) const;
  const NetworkDescription& network() const { return network_; }
  const InitialPolicy* initial() const { return initial_ ? &*initial_ : nullptr; }

 private:
  RebuiltRun() = default;
  ExperimentConfig config_;
  NetworkDescription network_;
  std::optional<InitialPolicy> initial_;
  std::unique_ptr<Evaluator> nothing_;  // plays no episode
};

struct FoundIndividual {
  Candidate candidate;
  std::string about;      // "individual 12 of generation 7"
  std::string reference;  // of a network with statistics (FoundGeneration)
};
// An individual of a run by name: "elite", the best candidate, whatever the algorithm; a number N,
// member N of the population of `generation` (-1: the last); a name of EvolutionAlgorithm's
// Candidates, after that generation. kUsage names those that there are.
Result<FoundIndividual> FindIndividual(const Path& run, const std::string& name,
                                       int64_t generation = -1);

}  // namespace samara
