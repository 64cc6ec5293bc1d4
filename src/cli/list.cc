// samara list: presets, environments, algorithms, networks, keys.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "env/atari_preset.h"
#include "env/registry.h"
#include "run/experiment.h"
#include "run/presets.h"

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
                      "Atari, any game by env.game=; doc/atari.md has every row");
  }
  for (const auto& id : NativeEnvironmentIds()) rows.emplace_back("env.id=" + id, "native C++");
  rows.emplace_back(
      "env.id=MODULE:NAME",
      "any Gymnasium environment with a Discrete or Box action space, in Python actors");
  rows.emplace_back("env.id=envpool:NAME",
                    "EnvPool's tasks: Football, Procgen, dm_control, ViZDoom, ...; `make envpool`");
  rows.emplace_back("env.id=dmlab:LEVEL", "DeepMind Lab, where its package is installed");
  return rows;
}

Rows AlgorithmRows() {
  return {
      {"deep-ga",
       "Deep GA (Such et al. 2018): truncation selection, mutation only, seed-encoded genomes"},
      {"random-search", "fresh genomes each generation; the Deep GA without parents"},
      {"vtrace", "V-trace (IMPALA, Espeholt et al. 2018) with central inference (SEED RL, 2020)"}};
}

Rows NetworkRows() {
  Rows rows;
  for (const auto& name : NetworkNames()) {
    const bool both = name.starts_with("mlp-");
    rows.emplace_back(
        name, both ? "evolution and learning; any mlp-<units>-..-<relu|tanh>" : "evolution");
  }
  for (const auto& name : AgentImageNetworkNames())
    rows.emplace_back(name, "learning from images; with network.lstm=UNITS an LSTM behind it");
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
  const std::vector<std::pair<std::string, Rows (*)()>> sections = {{"presets", PresetRows},
                                                                    {"envs", EnvironmentRows},
                                                                    {"algorithms", AlgorithmRows},
                                                                    {"networks", NetworkRows},
                                                                    {"keys", KeyRows}};
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
      app.add_subcommand("list", "presets, environments, algorithms, networks, configuration keys");
  auto what = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  command
      ->add_option("what", *what, "presets, envs, algorithms, networks or keys; all when left out")
      ->check(CLI::IsMember({"presets", "envs", "algorithms", "networks", "keys"}));
  command->add_flag("--json", *json, "last line: one JSON object");
  command->callback([=, &invocation] { invocation.run = [=] { return RunList(*what, *json); }; });
}

}  // namespace samara
