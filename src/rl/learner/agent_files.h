// A learner's files in a checkpoint: parameters, optimizer, and what continues a run with the same
// bits.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "rl/learner/agent.h"
#include "rl/learner/network_statistics.h"
#include "rl/learner/optimizer.h"
#include "rl/learner/policy_versions.h"

namespace samara {

using NamedTensors = std::map<std::string, torch::Tensor>;

NamedTensors NamedParameters(const AgentNetworkImpl& network);

std::string TensorsToFile(const NamedTensors& tensors,
                          std::map<std::string, std::string> metadata = {});
// kBadData: there is no file of this name, or it has not exactly the names and shapes of `like`.
Result<NamedTensors> TensorsFromFile(const std::map<std::string, std::string>& files,
                                     const char* name, const NamedTensors& like);
// The number that a file says of `key`. kBadData: it says none. REQUIRES: TensorsFromFile was ok.
Result<uint64_t> NumberOfFile(const std::string& file, const char* name, const char* key);

// State of a learner that a checkpoint holds; all borrowed. `parameters` are those of `network`,
// and the algorithm's.
struct LearnerState {
  NamedTensors& parameters;
  uint64_t& version;
  Optimizer& optimizer;
  const AgentNetworkImpl& network;
  NetworkStatistics& statistics;
  Acting& acting;
};
// As Agent::Save and Agent::Restore (agent.h).
std::map<std::string, std::string> SaveAgent(Agent::Part part, const NamedTensors& parameters,
                                             uint64_t version, const Optimizer& optimizer,
                                             const NetworkStatistics& statistics,
                                             const Acting& acting);
Status RestoreAgent(const std::map<std::string, std::string>& files, Agent::Part part,
                    const LearnerState& state);

}  // namespace samara
