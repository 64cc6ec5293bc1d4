#include "config/experiment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "evo/algorithms/registry.h"
#include "nn/layer_line.h"
#include "rl/algorithms/registry.h"

namespace samara {

bool ExperimentConfig::Learns() const { return FindLearningAlgorithm(run.algorithm) != nullptr; }

ExperimentConfig::ExperimentConfig() { Choose(run.algorithm); }

void ExperimentConfig::Choose(std::string_view algorithm) {
  run.algorithm = algorithm;
  if (const EvolutionRow* row = FindEvolutionAlgorithm(algorithm)) {
    run.algorithm = row->name;
    evolution = row->config();
  }
}

void ExperimentConfig::ChooseAlgorithm(std::string_view toml,
                                       const std::vector<std::string>& overrides) {
  constexpr std::string_view kKey = "run.algorithm";
  std::string chosen = run.algorithm;
  if (std::string text = TextIn(toml, kKey); !text.empty()) chosen = text;
  for (std::string_view word : overrides) {
    if (!word.starts_with(kKey) || !word.substr(kKey.size()).starts_with('=')) continue;
    word.remove_prefix(kKey.size() + 1);
    if (word.size() > 1 && word.front() == '"') word = word.substr(1, word.size() - 2);
    chosen = word;
  }
  if (chosen != run.algorithm) Choose(chosen);
}

void BindGymOptions(ConfigTable& table, EnvironmentConfig& env) {
  table.AddTable("env.kwargs", &env.kwargs,
                 "arguments of a Gymnasium environment: env.kwargs.NAME=VALUE, or a table",
                 OnResume::kMustMatchAdded);
  table.AddList("env.wrappers", &env.wrappers,
                "wrappers around a Gymnasium environment, innermost first: module:Class",
                OnResume::kMustMatchAdded);
}

GymOptions GymOptionsOf(const EnvironmentConfig& env) {
  return {.kwargs = JsonOf(env.kwargs), .wrappers = JsonOf(env.wrappers)};
}

bool ChoosesCode(const EnvironmentConfig& env) { return ChoosesCode(env.id, GymOptionsOf(env)); }

std::vector<std::string> AlgorithmNames() {
  std::vector<std::string> names;
  for (const EvolutionRow& row : EvolutionAlgorithms()) names.push_back(row.name);
  for (const LearningAlgorithm& row : LearningAlgorithms()) names.push_back(row.name);
  return names;
}

std::vector<KeyOfAlgorithms> ExperimentConfig::AllKeys() {
  std::vector<KeyOfAlgorithms> keys;
  for (const std::string& name : AlgorithmNames()) {
    ExperimentConfig config;
    config.Choose(name);
    const ConfigTable table = config.OwnTable();
    for (ConfigField field : table.fields()) {
      field.set = nullptr, field.get = nullptr;
      const auto known =
          std::ranges::find(keys, field.key, [](const auto& k) { return k.field.key; });
      (known == keys.end() ? keys.emplace_back(KeyOfAlgorithms{field, {}}) : *known)
          .algorithms.push_back(name);
    }
  }
  return keys;
}

ConfigTable ExperimentConfig::Table() {
  ConfigTable table = OwnTable();
  for (const auto& [field, algorithms] : AllKeys())
    if (table.Find(field.key) == nullptr)
      table.AddElsewhere(field.key, fmt::format("run.algorithm={}; this run is {}",
                                                fmt::join(algorithms, " or "), run.algorithm));
  return table;
}

ConfigTable ExperimentConfig::OwnTable() {
  ConfigTable table;
  const auto change = OnResume::kMayChange;
  table.Add("run.name", &run.name, {}, "name of the run folder", change);
  table.Add("run.algorithm", &run.algorithm, AlgorithmNames(),
            "the algorithm; `samara list algorithms`");
  for (const EvolutionRow& row : EvolutionAlgorithms())
    if (!row.former.empty()) table.AddFormerValue("run.algorithm", row.former, row.name);
  table.Add("run.seed", &run.seed, {0, 9e18}, "", "seed of every random draw");
  table.Add(
      "run.device", &run.device, {},
      "device that computes networks: cpu, cuda (the first GPU), cuda:N or cuda:N,cuda:M; "
      "auto = the first GPU that can be used (ranks of a host: those like it, in turn), where "
      "environments are of actors; else the CPU",
      change);
  table.Add("run.minutes", &run.minutes, {0, 1e7}, "min",
            "budget of running time, checked between generations; 0 = none", OnResume::kMayGrow);
  table.Add("run.checkpoint_seconds", &run.checkpoint_seconds, {1, 1e6}, "s",
            "time between full checkpoints", change);
  table.Add("run.disk_retry_seconds", &run.disk_retry_seconds, {0, 1e6}, "s",
            "time to wait for space on a full disk before the run ends", change);
  table.Add("run.random_episodes", &run.random_episodes, {0, 100'000}, "episodes",
            "episodes of the random policy, for comparison", change);
  table.Add("run.video", &run.video, "record a video of the elite or the agent at the end", change);
  table.Add("env.id", &env.id, {},
            "empty: the Atari game; else a native id or any Gymnasium id (module:Name-v0)");
  table.Add("env.game", &env.game, {}, "Atari game");
  table.Add("env.preset", &env.preset, {}, "Atari preset; `samara list envs`");
  BindGymOptions(table, env);
  table.Add("env.frames_max", &env.frames_max, {0, 1e12}, "frames",
            "maximum length of an episode; 0 = the preset's");
  table.Add(
      "env.test_frames_max", &env.test_frames_max, {0, 1e12}, "frames",
      "maximum length of a test episode; 0 = the preset's, or env.frames_max for a task without "
      "a limit of its own");
  table.Add("fleet.actors", &fleet.actors, {0, 4096}, "processes",
            "number of Python actor processes; 0 = one per core", change);
  table.Add("fleet.threads", &fleet.threads, {0, 4096}, "threads",
            "number of threads for inference or native episodes; 0 = one per core", change);
  table.Add("fleet.step_timeout", &fleet.step_timeout, {0.1, 86400}, "s",
            "time without an answer after which an actor counts as hung", change);
  if (Learns()) {
    table.Add("env.stack", &env.stack, {0, 64}, "observations",
              "number of images stacked along the channels; 0 = the Atari preset's, "
              "4 for gray images, 1 for images with channels",
              OnResume::kMustMatchAdded);
    table.Add("fleet.remote_slots", &fleet.remote_slots, {0, 65'536}, "slots",
              "with --listen: number of slots for actors on other machines; 0 = all", change);
    table.Add("run.stop_at", &run.stop_at, {}, "",
              "mean return of 20 evaluation episodes at which the run ends; none = at its budget",
              change);
    samara::ChooseAlgorithm(learning, run.algorithm);
    Bind(table, learning);
    return table;
  }
  table.Add("fleet.slots", &fleet.slots, {0, 65536}, "slots",
            "total number of environments; 0 = two per actor or thread, eight with a GPU", change);
  table.Add(
      "fleet.inference", &fleet.inference, {"actor", "engine"},
      "where networks run on the CPU: in each actor process, next to its simulator, or in the "
      "learner process",
      change);
  table.Add("fleet.native", &fleet.native, {"direct", "slots"},
            "native environments: whole episodes on threads, or step by step in slots", change);
  table.Add("network.name", &network.name, {}, "name of the network; `samara list networks`");
  table.Add("network.layers", &network.layers, {}, kLayersHelp, OnResume::kMustMatchAdded);
  table.Add("network.action_bins", &network.action_bins, {0, 1000}, "values",
            "continuous actions: number of evenly spaced values among which the network chooses "
            "for each dimension; 0 = its outputs are the values",
            OnResume::kMustMatchAdded);
  table.Add("network.storage", &network.storage, {"float32", "bf16", "int8"},
            "number format of the weights; bf16 and int8 need less memory bandwidth");
  table.Add("run.init_from", &run.init_from, {},
            "policy file or run folder to begin from; a larger network takes what fits",
            OnResume::kMustMatchAdded);
  table.Add("run.stop_when_solved", &run.stop_when_solved,
            "end the run once the task's published criterion is met", change);
  table.Add("run.final_test_episodes", &run.final_test_episodes, {0, 100'000}, "episodes",
            "test episodes of the elite at the end; 0 = as many as in a test", change);
  evolution->Bind(table);
  return table;
}

size_t FinalTestEpisodes(const ExperimentConfig& config) {
  const int64_t asked = config.run.final_test_episodes;
  return static_cast<size_t>(asked > 0 ? asked : config.evolution->budget.test_episodes);
}

std::string BudgetKeys(const ExperimentConfig& config) {
  return fmt::format("{0}.generations, {0}.frames or run.minutes", config.evolution->table());
}

std::vector<std::string> Settle(ExperimentConfig& config) {
  std::vector<std::string> warnings;
  const OptimizerConfig& optimizer = config.learning.optimizer;
  const double frames = config.learning.learn.frames;
  if (config.Learns()) {
    if (optimizer.schedule == RateSchedule::kLinear && frames > optimizer.schedule_frames)
      warnings.push_back(
          fmt::format("learn.frames={:.15g} goes beyond optimizer.schedule_frames={:.15g}: the "
                      "learning rate is 0 from there on; raise optimizer.schedule_frames too",
                      frames, optimizer.schedule_frames));
    return warnings;
  }
  warnings = config.evolution->Settle();
  const EvolutionBudget& budget = config.evolution->budget;
  if (budget.generations == 0 && budget.frames == 0 && budget.evaluations == 0 &&
      config.run.minutes == 0)
    warnings.push_back("no budget: the run continues until it is stopped; set " +
                       BudgetKeys(config));
  return warnings;
}

}  // namespace samara
