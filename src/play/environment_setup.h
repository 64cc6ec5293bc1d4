// From a configuration to what runs it: environments, the network that fits them, the evaluator.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "config/experiment.h"
#include "core/device.h"
#include "env/atari_preset.h"
#include "evo/evaluate/evaluator.h"
#include "fleet/remote/remote.h"

namespace samara {

// Everything that an experiment runs on: what steps the environments (exactly one of `fleet` and
// `factory`), the network that fits them, how episodes are made.
struct EnvironmentSetup {
  std::unique_ptr<Fleet> fleet;
  EnvironmentFactory factory;  // native environments played whole, on threads
  uint32_t workers = 0;        // of an agent's fleet: threads or processes that step; 0 = not known
  EnvironmentSpec environment;
  std::unique_ptr<PolicyModel> model;
  std::optional<int> gpu;  // that evaluates the population; none: the CPU
  EpisodeRule episodes;
  std::string header;  // every row of the Atari preset, for the run header
  std::optional<AtariPreset> preset;
  std::optional<FrameStackRule>
      stack;                  // of an agent, as the preset or env.stack says; rl/learner/agent.h
  std::string listens;        // at this address, as actors give it to --connect; empty: not at all
  std::string actor_command;  // that comes to it
  const NetworkDescription& network() const { return model->kernel().network(); }
};

// Starts actor processes where the environment needs them; touches no run folder. kConfig for what
// the configuration gets wrong, kNotPermitted for env.untrusted, kNoInput for a missing .venv or
// ROM. With `render` the fleet sends pictures. `gpu` is to evaluate the population.
Result<EnvironmentSetup> SetUpEvolution(const ExperimentConfig& config, bool render = false,
                                        std::optional<int> gpu = std::nullopt);

// The GPU that run.device chooses for a population. `auto` takes one for environments of actors,
// whose networks are large, and leaves small networks of native environments to the CPU. Of several
// each rank has one. kConfig: more than ranks, or a build without kernels; kUnavailable: not here.
Result<std::optional<int>> PopulationGpu(const ExperimentConfig& config,
                                         const RankPlace& mine = {});

// The same for a learning agent: no model, and always a fleet, of `slots` slots. Where `remote`
// names an address, fleet.remote_slots of them are for actors on other machines.
Result<EnvironmentSetup> SetUpLearning(const ExperimentConfig& config, uint32_t slots,
                                       bool render = false, const RemoteFleetOptions& remote = {});

// The reference batch of a run (evo/evaluate/reference.h), from an environment of `setup`.
Result<std::vector<float>> CollectReference(const EnvironmentSetup& setup, uint64_t seed);

// Takes the fleet or factory of `setup` and its model; `environment`, `episodes` and `header` stay.
// REQUIRES: a copy of setup.network() is taken before.
Result<std::unique_ptr<Evaluator>> MakeEvaluator(const ExperimentConfig& config,
                                                 EnvironmentSetup& setup);

}  // namespace samara
