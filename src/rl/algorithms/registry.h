// The learning algorithms: one row each. Torch-free; a program without torch has all rows, so that
// it lists keys and checks configurations, and makes the agents that need no torch.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "rl/learner/agent.h"
#include "rl/learner/learning_config.h"

namespace samara {

class Algorithm;  // rl/learner/algorithm.h
using MakeAlgorithm = std::unique_ptr<Algorithm>(const LearningConfig& config);

// Functions that a row names: they make an algorithm's parameters, with their defaults, and the
// algorithm itself.
template <typename Parameters>
std::unique_ptr<AlgorithmConfig> NewParameters() {
  return std::make_unique<Parameters>();
}
template <typename Derived>
std::unique_ptr<Algorithm> NewAlgorithm(const LearningConfig& config) {
  return std::make_unique<Derived>(config);
}

struct LearningAlgorithm {
  std::string name;   // the value of run.algorithm
  std::string about;  // one line
  std::string paper;
  std::unique_ptr<AlgorithmConfig> (*parameters)();  // new ones, with their defaults
  MakeAlgorithm* make = nullptr;                     // null in a program without torch
  // instead of `make`: of an algorithm with an agent of its own, which needs no torch
  // (rl/learner/replay_learner.h)
  Result<std::unique_ptr<Agent>> (*agent)(const AgentSetup& setup) = nullptr;
};

std::span<const LearningAlgorithm> LearningAlgorithms();
const LearningAlgorithm* FindLearningAlgorithm(std::string_view name);  // null: there is none
// Adds the row of a program outside this tree, before the program reads a configuration. REQUIRES:
// no row has its name.
void RegisterLearningAlgorithm(LearningAlgorithm row);

// Makes `config` one of this algorithm, with its own parameters at their defaults unless it was one
// before. REQUIRES: the name is in the registry.
void ChooseAlgorithm(LearningConfig& config, std::string_view name);

// The format in which the setup's network computes its products: kFloat32 or kBfloat16.
Precision PrecisionOf(const AgentSetup& setup);

// kConfig for a configuration or a network that does not fit the environment, and where this
// program lacks the torch that the agent needs.
Result<std::unique_ptr<Agent>> MakeAgent(const AgentSetup& setup);
// Whether this program can make the agents of an algorithm; empty: of every one, which takes torch.
bool HasAgents(std::string_view algorithm = {});
// Whether this program has code for GPUs, and agents to use them.
bool AgentsUseGpus();

}  // namespace samara
