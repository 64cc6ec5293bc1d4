// The policy that an evolution begins from (run.init_from): another run's, or that of a policy
// file, made to fit the run's network. The run folder keeps it as initial.safetensors, a policy
// file, so that a resume, other ranks, eval and export need nothing else.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "config/experiment.h"
#include "evo/genome/genome.h"
#include "storage/run_folder.h"

namespace samara {

struct InitialFile {
  std::string bytes;        // initial.safetensors
  nlohmann::json identity;  // member initial_policy of run.json
  std::string about;        // a line for the log
};
// Makes the file for a new run. kConfig when the policy does not fit `network`, else LoadPolicy's
// status.
Result<InitialFile> MakeInitialFile(const ExperimentConfig& config,
                                    const NetworkDescription& network);
// kBadData when the file is not one of a run with `network`.
Result<InitialPolicy> ParseInitialPolicy(const std::string& bytes,
                                         const NetworkDescription& network);
// Reads the initial policy of a run folder; nothing when the run has none.
Result<std::optional<InitialPolicy>> InitialPolicyOf(const RunFolder& run,
                                                     const NetworkDescription& network);

}  // namespace samara
