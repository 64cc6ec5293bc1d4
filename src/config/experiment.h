// Every parameter of an experiment: plain structs, and the table that binds them to keys.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/cloned.h"
#include "core/config.h"
#include "evo/algorithms/algorithm.h"
#include "fleet/named_environment.h"
#include "rl/learner/learning_config.h"

namespace samara {

struct RunConfig {
  std::string name = "run";
  std::string algorithm = "deep-ga";
  int64_t seed = 1;
  std::string init_from;  // policy that an evolution begins from: file or run folder; empty: none
  std::string device = "auto";     // where networks are computed (core/device.h)
  double minutes = 0;              // budget of running time; 0 = none
  double checkpoint_seconds = 60;  // between full checkpoints; each generation is journalled anyway
  double disk_retry_seconds = 900;  // of a full disk before the run gives up
  int64_t random_episodes = 30;     // of the random policy, for comparison
  int64_t final_test_episodes = 0;  // of the elite at the end; 0 = those of a test
  bool video = true;
  bool stop_when_solved = false;  // an evolution, at the task's criterion
  std::optional<double> stop_at;  // a learning run, at this mean return of an evaluation
};

struct EnvironmentConfig {
  std::string id;  // empty: the Atari game below; a native id; else a Gymnasium id
  std::string game = "frostbite";
  std::string preset = "deepga-gpu";  // of Atari
  std::string kwargs = "{}";          // of a Gymnasium environment, TOML
  std::string wrappers = "[]";        // around it, innermost first, TOML
  int64_t frames_max = 0;             // population and validation; 0 = the preset's limit
  int64_t test_frames_max = 0;
  int64_t stack = 0;  // images that a learning agent sees together; 0 = see EnvironmentSetup::stack
  // Not a key: why what named this environment is not trusted to; nothing is started for it then.
  // Empty: it is trusted.
  std::string untrusted;
};

// The keys env.kwargs and env.wrappers.
void BindGymOptions(ConfigTable& table, EnvironmentConfig& env);
GymOptions GymOptionsOf(const EnvironmentConfig& env);
// Whether starting this environment runs code, or opens files, that the configuration chooses.
bool ChoosesCode(const EnvironmentConfig& env);

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
  std::string layers;  // a line (nn/layer_line.h); not empty: instead of the name
  const std::string& text() const { return layers.empty() ? name : layers; }
  std::string storage = "float32";
  int64_t action_bins = 0;  // of continuous actions, per dimension; 0: outputs are the values
};

// The values of run.algorithm: those of evolution, then the learning ones.
std::vector<std::string> AlgorithmNames();

// A key and the algorithms that have it, in the order of AlgorithmNames.
struct KeyOfAlgorithms {
  ConfigField field;  // the first algorithm's; bound to nothing: `set` and `get` are empty
  std::vector<std::string> algorithms;
};

struct ExperimentConfig {
  ExperimentConfig();  // of the default algorithm
  RunConfig run;
  EnvironmentConfig env;
  FleetConfig fleet;
  // of evolution
  NetworkConfig network;
  Cloned<EvolutionConfig> evolution;  // of run.algorithm; the default's where that is no evolution
  // of learning agents
  LearningConfig learning;

  // Whether run.algorithm is a learning agent's; otherwise it is evolution.
  bool Learns() const;
  // Takes run.algorithm alone from where a configuration comes from: it decides which keys there
  // are. To be called before Table.
  void ChooseAlgorithm(std::string_view toml, const std::vector<std::string>& overrides = {});
  // All keys of run.algorithm, bound to this object: it must outlive the table. It refuses a key of
  // other algorithms by naming them.
  ConfigTable Table();
  static std::vector<KeyOfAlgorithms> AllKeys();

 private:
  void Choose(std::string_view algorithm);
  ConfigTable OwnTable();
};

// Keys that bound an evolution, for messages: "ga.generations, ga.frames or run.minutes".
std::string BudgetKeys(const ExperimentConfig& config);
// Episodes of the last test of an evolution.
size_t FinalTestEpisodes(const ExperimentConfig& config);

// Makes `config` what the run will use: counts of evolution are at most the population. The
// warnings about it, one line each: what was lowered, a schedule that is over before the budget is,
// no budget.
std::vector<std::string> Settle(ExperimentConfig& config);

}  // namespace samara
