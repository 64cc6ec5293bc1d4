// samara list: presets, environments, games, algorithms, networks, keys.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "config/experiment.h"
#include "config/presets.h"
#include "core/venv.h"
#include "env/atari_preset.h"
#include "env/registry.h"
#include "evo/algorithms/registry.h"
#include "nn/layer_line.h"
#include "report/reference_scores.h"
#include "rl/algorithms/registry.h"

namespace samara {
namespace {

struct Row {
  std::string name, about;
  std::string kind{};  // of an algorithm: evolution or learning
  auto operator<=>(const Row&) const = default;
};
using Rows = std::vector<Row>;

Rows PresetRows() {
  Rows rows;
  for (const Preset& preset : Presets()) rows.push_back({preset.name, preset.summary()});
  return rows;
}

// "native C++: 84 x 84 bytes, 25 actions, solved at -10"
std::string NativeAbout(const std::string& id) {
  const auto spec = NativeSpec(id);
  if (!spec) return "native C++ on MuJoCo's library";
  const ObservationSpec& seen = spec->observation;
  std::string text = fmt::format("native C++: {} {}, {}", fmt::join(seen.shape, " x "),
                                 seen.dtype == DType::kUint8 ? "bytes" : "numbers",
                                 spec->action.discrete ? fmt::format("{} actions", spec->action.n)
                                                       : fmt::format("box of {}", spec->action.n));
  if (!std::isnan(spec->solved)) text += fmt::format(", solved at {:g}", spec->solved);
  return text;
}

Rows EnvironmentRows() {
  Rows rows;
  for (const auto& name : AtariPresetNames()) {
    rows.push_back({"env.preset=" + name,
                    fmt::format("Atari as in {}; with env.game=GAME (`samara list games`)",
                                FindAtariPreset(name).ValueOrThrow().origin)});
  }
  for (const auto& id : NativeEnvironmentIds()) rows.push_back({"env.id=" + id, NativeAbout(id)});
  rows.push_back({"env.id=NAME or MODULE:NAME",
                  "any Gymnasium environment with a Discrete, MultiDiscrete, MultiBinary or Box "
                  "action space, in Python actors"});
  rows.push_back({"env.id=envpool:NAME",
                  "EnvPool's tasks: Football, Procgen, dm_control, ViZDoom, ...; `make envpool`"});
  rows.push_back({"env.id=dmlab:LEVEL", "DeepMind Lab, where its package is installed"});
  return rows;
}

// Games of env.game with what is published about them.
Rows GameRows() {
  const auto games = AtariGames();
  if (!games.ok()) return {{"none", games.status().message()}};
  Rows rows;
  for (const std::string& game : *games) {
    const auto scale = ScaleOfGame(game);
    rows.push_back({"env.game=" + game, scale ? fmt::format("published means: random {}, human {}",
                                                            scale->random, scale->human)
                                              : std::string()});
  }
  return rows;
}

Rows AlgorithmRows() {
  Rows rows;
  for (const EvolutionRow& row : EvolutionAlgorithms())
    rows.push_back({row.name, row.about + "; " + row.paper, "evolution"});
  for (const LearningAlgorithm& row : LearningAlgorithms())
    rows.push_back({row.name, row.about + "; " + row.paper, "learning"});
  return rows;
}

// Description of a network, the runs that can use it, and its size: of images for Atari's 84 x 84 x
// 4 and 18 actions, of vectors for 8 numbers and 4 actions.
std::string AboutNetwork(const NetworkRow& row) {
  const auto vector = MakeNetwork(row.name, 1, 1, 8, 4);
  const auto evolved = vector.ok() ? vector : MakeNetwork(row.name, 84, 84, 4, 18);
  const bool learns = MakeTorso(row.name, 84, 84, 4).ok();
  return fmt::format(
      "{}{}: {}; {}{}", row.about, row.source.empty() ? "" : " (" + row.source + ")",
      row.layers.empty() ? "no hidden layer" : row.layers,
      !evolved.ok() ? "learning"
      : learns      ? "evolution and learning"
                    : "evolution",
      !evolved.ok() ? ""
                    : fmt::format("; {} parameters for {}", evolved->evolved_count,
                                  vector.ok() ? "8 inputs, 4 actions" : "84 x 84 x 4, 18 actions"));
}

Rows NetworkRows() {
  Rows rows;
  for (const NetworkRow& row : Networks()) rows.push_back({row.name, AboutNetwork(row)});
  rows.push_back(
      {"mlp-64-64-tanh", AboutNetwork({"mlp-64-64-tanh", "any mlp-<units>-..-<activation>",
                                       "dense 64 tanh, dense 64 tanh", ""})});
  rows.push_back({"network.layers=LINE", std::string("any other: ") + kLayersHelp});
  return rows;
}

Rows KeyRows() {
  Rows rows;
  const size_t all = AlgorithmNames().size();
  for (const auto& [f, algorithms] : ExperimentConfig::AllKeys()) {
    std::string about = f.help + " (" + f.type + (f.range.empty() ? "" : ", " + f.range) +
                        (f.unit.empty() ? "" : ", " + f.unit) + ")";
    if (algorithms.size() < all) about += fmt::format(" [{}]", fmt::join(algorithms, " or "));
    rows.push_back({f.key + " = " + f.default_value, std::move(about)});
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
    for (const Row& row : rows()) {
      if (!json) {
        std::printf("  %-34s %s\n", row.name.c_str(), row.about.c_str());
        continue;
      }
      nlohmann::json entry = {{"name", row.name}, {"about", row.about}};
      if (!row.kind.empty()) entry["kind"] = row.kind;
      object[name].push_back(std::move(entry));
    }
    if (!json) std::printf("\n");
  }
  if (json) PrintJson(object);
  return Status::Ok();
}

}  // namespace

Result<std::vector<std::string>> AtariGames() {
  // they have no single-player mode; python/samara/atari.py refuses them
  static constexpr std::string_view kNotPlayable[] = {"combat", "joust", "maze_craze", "warlords"};
  ASSIGN_OR_RETURN(const Path package, FindVenvPackage("ale_py"));
  std::vector<std::string> games;
  std::error_code failed;
  for (const auto& file : std::filesystem::directory_iterator(package / "roms", failed)) {
    const std::string game = file.path().stem().string();
    if (file.path().extension() == ".bin" && std::ranges::count(kNotPlayable, game) == 0)
      games.push_back(game);
  }
  std::sort(games.begin(), games.end());
  return games;
}

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
