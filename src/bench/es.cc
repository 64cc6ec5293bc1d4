// Evolution strategies on CartPole, whole generations: every member's episodes, the update, the
// centre's validation. Next to it evosax's Open_ES with the same population, network and episodes
// of up to 500 steps in jax (es_rivals.py), on the same cores, in turns.
#include <fmt/format.h>

#include <algorithm>

#include "bench/bench.h"
#include "config/presets.h"
#include "core/cpu.h"
#include "play/environment_setup.h"

namespace samara::bench {

using nlohmann::json;

namespace {

constexpr int kEsRounds = 3;
constexpr const char* kPreset = "classic/cartpole-es";

// Decisions of population and validation per second, from a new run on.
Result<double> StepsPerSecond(double seconds) {
  ExperimentConfig config;
  ASSIGN_OR_RETURN(const std::string preset, PresetText(kPreset));
  config.ChooseAlgorithm(preset);
  ConfigTable table = config.Table();
  RETURN_IF_ERROR(table.ParseToml(preset, kPreset));
  for (const char* setting : {"es.population=64", "es.validation_episodes=1", "es.test_every=0"})
    RETURN_IF_ERROR(table.Override(setting));
  ASSIGN_OR_RETURN(EnvironmentSetup setup, SetUpEvolution(config));
  const NetworkDescription network = setup.network();
  ASSIGN_OR_RETURN(const auto evaluator, MakeEvaluator(config, setup));
  const auto es = config.evolution->Make({1, network, *evaluator, setup.episodes});
  const SteadyTime start = Now();
  while (SecondsSince(start) < seconds) RETURN_IF_ERROR(es->Step(nullptr).status());
  return static_cast<double>(es->summary().steps) / SecondsSince(start);
}

}  // namespace

Result<json> EvolutionStrategies(const Options& options) {
  json result = {{"preset", kPreset},      {"population", 64},
                 {"cores", Cores()},       {"steps_per_second", 0.0},
                 {"rival", nullptr},       {"rival_steps_per_second", nullptr},
                 {"ratio", nullptr},       {"rival_useful_steps_per_second", nullptr},
                 {"useful_ratio", nullptr}};
  double ours = 0, rivals = 0, useful = 0;  // the last: without those after an episode's end
  for (int round = 0; round < kEsRounds; ++round) {
    ASSIGN_OR_RETURN(const double rate, StepsPerSecond(options.seconds / kEsRounds));
    ours = std::max(ours, rate);
    options.say(fmt::format("CartPole, population 64: {:.0f} steps/s on {} cores", rate, Cores()));
    if (!options.rivals || result.contains("rival_missing")) continue;
    ASSIGN_OR_RETURN(const json row,
                     RunRival("es_rivals.py", {std::to_string(Cores()),
                                               fmt::format("{}", options.seconds / kEsRounds)}));
    if (!row.contains("steps_per_second")) {
      result["rival_missing"] = row.value("reason", "");
      options.say("no rival: " + row.value("reason", ""));
      continue;
    }
    if (const auto all = row["steps_per_second"].get<double>(); all > rivals)
      rivals = all, useful = row["useful_steps_per_second"].get<double>();
    result["rival"] = row["rival"];
    options.say(row["rival"].get<std::string>() + ": " + row.dump());
  }
  result["steps_per_second"] = ours;
  if (rivals > 0) result["rival_steps_per_second"] = rivals, result["ratio"] = ours / rivals;
  if (useful > 0)
    result["rival_useful_steps_per_second"] = useful, result["useful_ratio"] = ours / useful;
  return Report(json::array({result}));
}

}  // namespace samara::bench
