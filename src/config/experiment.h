// From a configuration to things that run: environment, network, evaluator, episode rule.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "env/atari_preset.h"
#include "evo/evaluate/evaluator.h"
#include "evo/ga.h"
#include "fleet/remote/remote.h"
#include "rl/learner/learning_config.h"

namespace samara {

struct RunConfig {
  std::string name = "run";
  std::string algorithm = "deep-ga";
  int64_t seed = 1;
  double minutes = 0;              // budget of running time; 0 = none
  double checkpoint_seconds = 60;  // between full checkpoints; each generation is journalled anyway
  double disk_retry_seconds = 900;  // of a full disk before the run gives up
  int64_t random_episodes = 30;     // of the random policy, for comparison
  int64_t final_test_episodes = 0;  // of the elite at the end; 0 = ga.test_episodes
  bool video = true;
};

struct EnvironmentConfig {
  std::string id;  // empty: the Atari game below; a native id; else a Gymnasium id
  std::string game = "frostbite";
  std::string preset = "deepga-gpu";  // of Atari
  int64_t frames_max = 0;             // population and validation; 0 = the preset's limit
  int64_t test_frames_max = 0;
  int64_t stack = 0;  // images that a learning agent sees together; 0 = see Stage::stack
  // Not a key: why what named this environment is not trusted to; nothing is started for it then.
  // Empty: it is trusted.
  std::string untrusted;
};

// Whether starting the environment `id` runs code, or opens files, that the id itself chooses:
// "module:Name-v0", or options of our own prefixes ("envpool:", "dmlab:") that may be paths.
bool ChoosesCode(std::string_view id);
// What a Python actor builds for an id that is no Atari game, as JSON: "dummy", or an id of
// Gymnasium or of our prefixes. A module is looked for where Python finds all others, and last in
// the current folder.
std::string PythonEnvironmentJson(const std::string& id);

struct FleetConfig {
  int64_t actors = 0;        // processes; 0 = one per core
  int64_t slots = 0;         // 0 = two per actor or thread
  int64_t remote_slots = 0;  // of a learning run that listens; 0 = all of them
  int64_t threads = 0;       // inference or rollout threads; 0 = one per core
  double step_timeout = 10;
  std::string inference = "actor";
  std::string native = "direct";
  // Not a key: engines of this run on this machine, among which "one per core" is divided.
  int engines = 1;
};

struct NetworkConfig {
  std::string name = "LargeModel";
  std::string storage = "float32";
};

struct ExperimentConfig {
  RunConfig run;
  EnvironmentConfig env;
  FleetConfig fleet;
  // of evolution
  NetworkConfig network;
  GaConfig ga;
  // of learning agents
  LearningConfig learning;

  // Whether run.algorithm is a learning agent's; otherwise it is evolution.
  bool Learns() const;
  // Takes run.algorithm alone from where a configuration comes from: it decides which keys there
  // are. To be called before Table.
  void ChooseAlgorithm(std::string_view toml, const std::vector<std::string>& overrides = {});
  // All keys of run.algorithm's kind, bound to this object: it must outlive the table. It
  // refuses a key of the other kind by naming the algorithms that have it.
  ConfigTable Table();
  // run.algorithm as it may be for configurations that have the same keys: "vtrace".
  std::string AlgorithmsOfKind() const;

 private:
  ConfigTable OwnTable();
};

// Makes `config` what the run will use: counts of evolution are at most the population. The
// warnings about it, one line each: what was lowered, a schedule that is over before the budget is,
// no budget.
std::vector<std::string> Settle(ExperimentConfig& config);

// What an experiment stands on: who steps the environments (exactly one of `fleet` and `factory`),
// the network that fits them, how episodes are made.
struct Stage {
  std::unique_ptr<Fleet> fleet;
  EnvironmentFactory factory;  // native environments played whole, on threads
  uint32_t workers = 0;        // of an agent's fleet: threads or processes that step; 0 = not known
  EnvironmentSpec environment;
  std::unique_ptr<PolicyModel> model;
  EpisodeRule episodes;
  std::string header;  // every row of the Atari preset, for the run header
  std::optional<AtariPreset> preset;
  std::optional<FrameStackRule> stack;  // of an agent, as the preset or env.stack says; rl/agent.h
  std::string listens;        // at this address, as actors give it to --connect; empty: not at all
  std::string actor_command;  // that comes to it
  const NetworkDescription& network() const { return model->kernel().network(); }
};

// Starts actor processes where the environment needs them; touches no run folder. kConfig for what
// the configuration gets wrong, kNotPermitted for env.untrusted, kNoInput for a missing .venv or
// ROM. With `render` the fleet sends pictures.
Result<Stage> MakeStage(const ExperimentConfig& config, bool render = false);

// The same for a learning agent: no model, and always a fleet, of `slots` slots. Where `remote`
// names an address, fleet.remote_slots of them are for actors on other machines.
Result<Stage> MakeAgentStage(const ExperimentConfig& config, uint32_t slots, bool render = false,
                             const RemoteFleetOptions& remote = {});

// Takes the stage's fleet or factory and its model; `environment`, `episodes` and `header` stay.
// REQUIRES: a copy of stage.network() is taken before.
Result<std::unique_ptr<Evaluator>> MakeEvaluator(const ExperimentConfig& config, Stage& stage);

}  // namespace samara
