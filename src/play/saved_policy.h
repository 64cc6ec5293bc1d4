// A policy to be played: from a run folder (its elite, or its agent) or from a policy file.
//
// A policy file is a safetensors file with the tensors of the torch module ("conv1.weight", ...)
// and the metadata that say how to play it (environment, network, genome);
// doc/policy_file_format.md.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/experiment.h"
#include "core/files.h"
#include "evo/algorithms/algorithm.h"
#include "play/environment_setup.h"
#include "storage/run_folder.h"

namespace samara {

struct Policy {
  ExperimentConfig config;  // env.* and network.* matter
  // of a learning agent (config.Learns()): what it restores itself from (rl/learner/agent.h)
  std::map<std::string, std::string> agent_files;
  // of an evolved one
  NetworkDescription network;
  std::vector<float> parameters;  // canonical order
  std::optional<Genome> genome;
  std::string source;       // "runs/x, elite of generation 7"
  bool overridden = false;  // LoadOptions::overrides name env.* or network.*
};

// Options of a user for a policy that is read.
struct LoadOptions {
  std::vector<std::string> overrides = {};  // table.key=value, on top of what the policy holds
  bool trust = false;                       // start the environment of another user's file
  bool allow_nonfinite = false;             // weights that are no numbers are accepted
  bool advise_nonfinite = false;            // messages name the command's --allow-nonfinite
  // of an evolution's run (play/rebuilt_run.h)
  std::string individual = "elite";
  int64_t generation = -1;  // the last
};

// Makes `policy` play an evolution's candidate on policy.network; `initial`: that of its run.
// kBadData when it does not fit.
Status TakeCandidate(const Candidate& best, Policy& policy, const InitialPolicy* initial = nullptr);
// Completes the parameters of a policy, which are in place, by the statistics of a run's reference
// batch (evo/evaluate/reference.h). Nothing to do where the network has no statistics.
Status TakeReference(std::string_view reference, Policy& policy);
// `target`: run folder or policy file. kNoInput when missing, kBadData when damaged or when a
// weight is not finite. A policy file whose environment chooses code (ChoosesCode), and a run
// folder that another user owns or may write to, say so in config.env.untrusted, unless the options
// trust them or choose another environment.
Result<Policy> LoadPolicy(const Path& target, const LoadOptions& options = {});
// kConfig when the network of the configuration, on this environment, is not the evolved policy's:
// an override chose another one.
Status CheckFits(const Policy& policy, const EnvironmentSetup& setup);
// kNotPermitted when another user owns the run folder, or the file, or may write to it.
Status CheckOwn(const Path& path);
// Whether the overrides choose all code that runs: one of them chooses the environment, and of the
// rest of `config` neither what env has next to its id (ChoosesCode) nor network.module is code.
bool ChoosesAllCode(const ExperimentConfig& config, const std::vector<std::string>& overrides);
// Name, input and output sizes, parameter count: enough to make the same network again.
nlohmann::json ToJson(const NetworkDescription& network);
// The network that run.json names.
Result<NetworkDescription> NetworkOf(const RunFolder& run);
size_t ParameterCount(const Policy& policy);
Status SavePolicy(const Policy& policy, const Path& file);
// The bytes of a policy file of an evolved policy. kFloat32 keeps every bit of its parameters, its
// network's own storage makes them what is played.
Result<std::string> FormatPolicy(const Policy& policy, Storage storage);
// And back; `source` names the file in messages.
Result<Policy> ParsePolicy(const std::string& bytes, const std::string& source);
// The network of an environment and a network name; Atari actors are asked for the game's action
// set.
Result<NetworkDescription> PolicyNetwork(const ExperimentConfig& config);

}  // namespace samara
