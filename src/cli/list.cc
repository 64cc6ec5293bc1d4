// samara list: presets, environments, games, algorithms, networks, keys.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "core/check.h"
#include "core/venv.h"
#include "env/atari_preset.h"
#include "env/registry.h"
#include "nn/network.h"
#include "config/experiment.h"
#include "config/presets.h"
#include "report/reference_scores.h"

namespace samara {
namespace {

using Rows = std::vector<std::pair<std::string, std::string>>;  // name, one line about it

Rows PresetRows() {
  Rows rows;
  for (const Preset& preset : Presets()) rows.emplace_back(preset.name, preset.summary());
  return rows;
}

Rows EnvironmentRows() {
  Rows rows;
  for (const auto& name : AtariPresetNames()) {
    rows.emplace_back("env.preset=" + name,
                      fmt::format("Atari as in {}; with env.game=GAME (`samara list games`)",
                                  FindAtariPreset(name).ValueOrThrow().origin));
  }
  for (const auto& id : NativeEnvironmentIds()) rows.emplace_back("env.id=" + id, "native C++");
  rows.emplace_back("env.id=NAME or MODULE:NAME",
                    "any Gymnasium environment with a Discrete, MultiDiscrete, MultiBinary or Box "
                    "action space, in Python actors");
  rows.emplace_back("env.id=envpool:NAME",
                    "EnvPool's tasks: Football, Procgen, dm_control, ViZDoom, ...; `make envpool`");
  rows.emplace_back("env.id=dmlab:LEVEL", "DeepMind Lab, where its package is installed");
  return rows;
}

// Games of env.game, as the ROMs of the environment's ale-py have them.
Rows GameRows() {
  // they have no single-player mode; python/samara/atari.py refuses them
  static constexpr std::string_view kNotPlayable[] = {"combat", "joust", "maze_craze", "warlords"};
  const auto package = FindVenvPackage("ale_py");
  if (!package.ok()) return {{"none", package.status().message()}};
  Rows rows;
  std::error_code failed;
  for (const auto& file : std::filesystem::directory_iterator(*package / "roms", failed)) {
    const std::string game = file.path().stem().string();
    if (file.path().extension() != ".bin" || std::ranges::count(kNotPlayable, game) > 0) continue;
    const auto scale = ScaleOfGame(game);
    rows.emplace_back(
        "env.game=" + game,
        scale ? fmt::format("published means: random {}, human {}", scale->random, scale->human)
              : std::string());
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

Rows AlgorithmRows() {
  return {
      {"deep-ga",
       "Deep GA (Such et al. 2018): truncation selection, mutation only, seed-encoded genomes"},
      {"random-search", "fresh genomes each generation; the Deep GA without parents"},
      {"vtrace", "V-trace (IMPALA, Espeholt et al. 2018) with central inference (SEED RL, 2020)"}};
}

// Layers and parameters of an evolved network: of images for Atari's 84 x 84 x 4 and 18 actions, of
// vectors for 8 numbers and 4 actions.
std::string SizeOf(const std::string& name, bool image) {
  const NetworkDescription network =
      (image ? MakeNetwork(name, 84, 84, 4, 18) : MakeNetwork(name, 1, 1, 8, 4)).ValueOrThrow();
  std::string text;
  for (size_t i = 0; i + 1 < network.layers.size(); ++i) {
    const Layer& layer = network.layers[i];
    if (i > 0) text += ", ";
    text += layer.kind == Layer::Kind::kConv ? fmt::format("{} of {}x{} stride {}", layer.out,
                                                           layer.kernel, layer.kernel, layer.stride)
                                             : fmt::format("{} units", layer.out);
  }
  return fmt::format("{}{}; {} parameters for {}", text.empty() ? "no hidden layer" : text,
                     name == "Nature" ? ", without padding" : "", network.parameter_count,
                     image ? "84 x 84 x 4, 18 actions" : "8 inputs, 4 actions");
}

// Returns what is known of a network by its name, beyond its size.
struct AgentNetwork {
  std::string_view name, about;
};
constexpr AgentNetwork kAgentNetworks[] = {
    {"nature", "the layers of Nature (DQN), and heads for policy and value"},
    {"impala_shallow", "16 of 8x8 stride 4, 32 of 4x4 stride 2, 256 units (IMPALA)"},
    {"impala_deep", "three residual stacks of 16, 32, 32, then 256 units (IMPALA)"},
    {"football", "four residual stacks of 16, 32, 32, 32, then 256 units (SEED RL)"},
};

Rows NetworkRows() {
  Rows rows;
  for (const auto& name : NetworkNames()) {
    const bool vector = name.starts_with("mlp-") || name == "linear";
    rows.emplace_back(
        name, (name.starts_with("mlp-") ? "evolution and learning, any mlp-<units>-..-<relu|tanh>: "
                                        : "evolution: ") +
                  SizeOf(name, !vector));
  }
  for (const auto& name : AgentImageNetworkNames()) {
    const auto* known = std::ranges::find(kAgentNetworks, name, &AgentNetwork::name);
    CHECK(known != std::end(kAgentNetworks)) << name << " has no line here";
    rows.emplace_back(name, fmt::format("learning from images: {}; network.lstm=UNITS adds an LSTM",
                                        known->about));
  }
  return rows;
}

Rows KeyRows() {
  Rows rows;
  ExperimentConfig config;
  const ConfigTable evolution = config.Table();
  std::vector<ConfigField> fields = evolution.fields();
  const std::string evolutions = config.AlgorithmsOfKind();
  config.run.algorithm = "vtrace";
  const ConfigTable learning = config.Table();
  for (const ConfigField& f : learning.fields()) {
    const bool known = std::any_of(fields.begin(), fields.end(),
                                   [&](const ConfigField& other) { return other.key == f.key; });
    if (!known) fields.push_back(f);
  }
  for (const ConfigField& f : fields) {
    std::string about = f.help + " (" + f.type + (f.range.empty() ? "" : ", " + f.range) +
                        (f.unit.empty() ? "" : ", " + f.unit) + ")";
    if (learning.Find(f.key) == nullptr) about += " [" + evolutions + "]";
    if (evolution.Find(f.key) == nullptr) about += " [" + config.AlgorithmsOfKind() + "]";
    rows.emplace_back(f.key + " = " + f.default_value, std::move(about));
  }
  return rows;
}

Status RunList(const std::string& what, bool json) {
  const std::vector<std::pair<std::string, Rows (*)()>> sections = {
      {"presets", PresetRows},       {"envs", EnvironmentRows}, {"games", GameRows},
      {"algorithms", AlgorithmRows}, {"networks", NetworkRows}, {"keys", KeyRows}};
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [name, rows] : sections) {
    if (!what.empty() && what != name) continue;
    if (!json) std::printf("%s\n", name.c_str());
    for (const auto& [row, about] : rows()) {
      if (json)
        object[name].push_back({{"name", row}, {"about", about}});
      else
        std::printf("  %-34s %s\n", row.c_str(), about.c_str());
    }
    if (!json) std::printf("\n");
  }
  if (json) PrintJson(object);
  return Status::Ok();
}

}  // namespace

void AddList(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      app.add_subcommand("list", "presets, environments, games, algorithms, networks, keys");
  auto what = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  command
      ->add_option("what", *what,
                   "presets, envs, games, algorithms, networks or keys; all when left out")
      ->check(CLI::IsMember({"presets", "envs", "games", "algorithms", "networks", "keys"}));
  command->add_flag("--json", *json, "last line: one JSON object");
  command->callback([=, &invocation] { invocation.run = [=] { return RunList(*what, *json); }; });
}

}  // namespace samara
