// samara list: presets, environments, games, algorithms, networks, keys.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "config/experiment.h"
#include "config/presets.h"
#include "core/config.h"
#include "core/format.h"
#include "core/log.h"
#include "core/venv.h"
#include "env/atari_preset.h"
#include "env/pixel_observations.h"
#include "env/registry.h"
#include "evo/algorithms/registry.h"
#include "nn/layer_line.h"
#include "report/reference_scores.h"
#include "rl/algorithms/registry.h"
#include "view/terminal.h"
#include "view/text_line.h"

namespace samara {
namespace {

using Members = std::vector<std::pair<const char*, std::string>>;

struct Row {
  std::string name, about;
  Members more{};  // other columns of a table, and members of --json
};
using Rows = std::vector<Row>;

constexpr int kTaskColumns = 14;

// "30", "100k", "4M"; 1,500 as it is.
std::string BudgetNumber(double value) {
  for (const auto& [size, suffix] : {std::pair{1e9, "B"}, {1e6, "M"}, {1e3, "k"}})
    if (value >= 10 * size || (value >= size && size > 1e3))
      return fmt::format("{:g}{}", value / size, suffix);
  return Grouped(value);
}

// "30 gens", "4M frames"; of several budgets the first that is set.
std::string BudgetOf(const Preset& preset) {
  static const std::map<std::string, const char*> kUnits = {{"frames", "frames"},
                                                            {"generations", "gens"},
                                                            {"evaluations", "evals"},
                                                            {"updates", "updates"},
                                                            {"minutes", "min"}};
  ExperimentConfig config;
  config.ChooseAlgorithm(preset.toml);
  ConfigTable table = config.Table();
  if (!table.ParseToml(preset.toml, preset.name).ok()) return {};
  for (const ConfigField& field : table.fields()) {
    const auto unit = kUnits.find(field.key.substr(field.key.find('.') + 1));
    const double value = unit == kUnits.end() ? 0 : std::stod(field.get());
    if (value > 0) return BudgetNumber(value) + " " + unit->second;
  }
  return {};
}

// "HalfCheetah-v5", "frostbite"; without the folder of a long name.
std::string TaskOf(const Preset& preset) {
  const std::string id = TextIn(preset.toml, "env.id");
  const std::string name = id.empty() ? TextIn(preset.toml, "env.game") : id;
  return CutLine(name.substr(name.find_last_of(":/") + 1), kTaskColumns);
}

// "sac"; R2D2 without a core is DQN of sequences.
std::string MethodOf(const Preset& preset) {
  const std::string algorithm = TextIn(preset.toml, "run.algorithm");
  if (algorithm != "r2d2") return algorithm;
  ExperimentConfig config;
  config.ChooseAlgorithm(preset.toml);
  const bool parsed = config.Table().ParseToml(preset.toml, preset.name).ok();
  return parsed && !config.learning.network.core() ? "r2d2 (dqn)" : algorithm;
}

Rows PresetRows() {
  Rows rows;
  for (const Preset& preset : Presets()) {
    rows.push_back({preset.name,
                    preset.summary(),
                    {{"task", TaskOf(preset)},
                     {"method", MethodOf(preset)},
                     {"budget", BudgetOf(preset)},
                     {"time", preset.note("time on two cores")},
                     {"score", preset.note("score")}}});
  }
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
  rows.push_back(
      {"env.id=NAME?pixels=N", fmt::format("a native task by its picture: {} to {} pixels "
                                           "square, gray",
                                           kPixelsMin, kPixelsMax)});
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
    rows.push_back({row.name, row.about + "; " + row.paper, {{"kind", "evolution"}}});
  for (const LearningAlgorithm& row : LearningAlgorithms())
    rows.push_back({row.name,
                    row.about + "; " + row.paper,
                    {{"kind", "learning"}, {"needs", row.agent != nullptr ? "" : "torch"}}});
  return rows;
}

// A network, the runs that can use it, and its size: of images for Atari's 84 x 84 x 4 and 18
// actions, of vectors for 8 numbers and 4 actions.
Row RowOfNetwork(const NetworkRow& row) {
  const auto vector = MakeNetwork(row.name, 1, 1, 8, 4);
  const auto evolved = vector.ok() ? vector : MakeNetwork(row.name, 84, 84, 4, 18);
  const bool learns_vectors = MakeTorso(row.name, 1, 1, 8).ok();
  const bool learns = learns_vectors || MakeTorso(row.name, 84, 84, 4).ok();
  const char* const shape = !evolved.ok() ? learns_vectors ? "vectors" : "images"
                            : vector.ok() ? "8 inputs, 4 actions"
                                          : "84 x 84 x 4, 18 actions";
  const char* const runs = !evolved.ok() ? "learning"
                           : learns      ? "evolution and learning"
                                         : "evolution";
  std::string about =
      fmt::format("{}{}: {}; {}", row.about, row.source.empty() ? "" : " (" + row.source + ")",
                  row.layers.empty() ? "no hidden layer" : row.layers, runs);
  if (evolved.ok()) about += fmt::format("; {} parameters for {}", evolved->evolved_count, shape);
  return {row.name,
          std::move(about),
          {{"parameters",
            evolved.ok() ? Grouped(static_cast<double>(evolved->evolved_count)) : std::string()},
           {"for", shape},
           {"in", runs}}};
}

Rows NetworkRows() {
  Rows rows;
  for (const NetworkRow& row : Networks()) rows.push_back(RowOfNetwork(row));
  rows.push_back(RowOfNetwork(
      {"mlp-64-64-tanh", "any mlp-<units>-..-<activation>", "dense 64 tanh, dense 64 tanh", ""}));
  rows.push_back({"network.layers=LINE", std::string("any other: ") + kLayersHelp});
  rows.push_back({"network.module=FILE.pt",
                  "a torch.nn.Module of yours as TorchScript; learning (doc/networks.md)"});
  return rows;
}

// Which algorithms have a key: "" for all, " [learning]" for all of a kind, else their names.
std::string OfAlgorithms(const std::vector<std::string>& names) {
  std::vector<std::string> evolution, learning;
  for (const EvolutionRow& row : EvolutionAlgorithms()) evolution.emplace_back(row.name);
  for (const LearningAlgorithm& row : LearningAlgorithms()) learning.emplace_back(row.name);
  const auto has = [&names](const std::string& name) { return std::ranges::count(names, name); };
  std::vector<std::string> shown;
  for (const auto& [kind, all] : {std::pair{"evolution", evolution}, {"learning", learning}}) {
    const auto there = std::ranges::count_if(all, has);
    if (there == std::ssize(all))
      shown.emplace_back(kind);
    else
      std::ranges::copy_if(all, std::back_inserter(shown), has);
  }
  if (shown == std::vector<std::string>{"evolution", "learning"}) return {};
  return fmt::format(" [{}]", fmt::join(shown, " or "));
}

Rows KeyRows() {
  Rows rows;
  for (const auto& [f, algorithms] : ExperimentConfig::AllKeys()) {
    std::string about = f.help + " (" + f.type + (f.range.empty() ? "" : ", " + f.range) +
                        (f.unit.empty() ? "" : ", " + f.unit) + ")";
    about += OfAlgorithms(algorithms);
    rows.push_back({f.key + " = " + f.default_value, std::move(about)});
  }
  return rows;
}

// Returns the width of lists: the terminal's, at most 100, and enough for words behind a name.
size_t Columns() { return static_cast<size_t>(std::clamp(ColumnsOf(stdout), 60, 100)); }

// A name, and what is said of it behind it.
std::vector<std::string> ListLines(const Rows& rows) {
  constexpr size_t kName = 32;
  std::vector<std::string> lines;
  for (const Row& row : rows) {
    std::string first = fmt::format("  {:<{}} ", row.name, kName);
    if (row.name.size() > kName && !row.about.empty())
      lines.push_back("  " + row.name), first = std::string(kName + 3, ' ');
    for (const std::string& line : Wrapped(row.about, Columns() - kName - 3)) {
      lines.push_back(first + line);
      first = std::string(kName + 3, ' ');
    }
    while (lines.back().ends_with(' ')) lines.back().pop_back();
  }
  return lines;
}

// A table of the rows' columns; with `about` what is said of each stands below it.
std::vector<std::string> TableLines(const Rows& rows, bool about) {
  std::vector<std::vector<std::string>> cells(1, {"name"});
  for (const auto& [name, text] : rows[0].more) cells[0].emplace_back(name);
  for (const Row& row : rows) {
    cells.push_back({row.name});
    for (const auto& [name, text] : row.more) cells.back().push_back(text);
  }
  std::vector<int> widths(cells[0].size());
  for (const auto& line : cells)
    for (size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], VisibleWidth(line[c]));
  std::vector<std::string> lines;
  for (size_t r = 0; r < cells.size(); ++r) {
    std::string text = " ";
    for (size_t c = 0; c < cells[r].size(); ++c)
      text += fmt::format(" {:<{}}", cells[r][c], widths[c]);
    lines.push_back(text.substr(0, text.find_last_not_of(' ') + 1));
    if (r > 0 && rows[r - 1].more.empty() && !about)
      lines.back() = CutLine(lines.back() + " " + rows[r - 1].about, static_cast<int>(Columns()));
    if (!about || r == 0) continue;
    for (const std::string& line : Wrapped(rows[r - 1].about, Columns() - 4))
      lines.push_back("    " + line);
  }
  return lines;
}

// Columns that a terminal too narrow for all of them does without, in this order.
constexpr std::string_view kLessNeeded[] = {"budget", "method", "time", "in"};

// Leaves out columns until a line fits.
Rows FittingTerminal(Rows rows) {
  const int columns = ColumnsOf(stdout);
  for (const std::string_view less : kLessNeeded) {
    int widest = 0;
    for (const std::string& line : TableLines(rows, /*about=*/false))
      widest = std::max(widest, VisibleWidth(line));
    if (widest <= columns) break;
    for (Row& row : rows)
      std::erase_if(row.more, [less](const auto& column) { return column.first == less; });
  }
  return rows;
}

struct Section {
  const char* name;
  const char* about;
  Rows (*rows)();
  const char* last = "";  // said behind its lines
};

constexpr Section kSections[] = {
    {"presets", "whole configurations to begin from: samara train NAME", PresetRows,
     "score: of the seeds in doc/results.md; not run: papers' sizes, days of training\n"
     "time: of a run there, on two cores\n"
     "about one: samara list presets NAME"},
    {"envs", "environments of samara's own: env.id=NAME", EnvironmentRows},
    {"games", "Atari games: env.game=NAME", GameRows},
    {"algorithms", "run.algorithm=NAME", AlgorithmRows},
    {"networks", "network.name=NAME", NetworkRows, "about one: samara list networks NAME"},
    {"keys", "of a configuration: KEY=VALUE, with their defaults", KeyRows}};

// Prints how many rows each list has, and what they are.
void PrintOverview() {
  for (const Section& section : kSections)
    std::printf("%4zu  samara list %-11s %s\n", section.rows().size(), section.name, section.about);
  std::printf("\nonly names that contain a word: samara list presets pong\n");
}

// The rows whose names contain `part`; of networks also one that no row has, such as mlp-32-relu.
Rows RowsOf(const Section& section, const std::string& part) {
  Rows rows = section.rows();
  std::erase_if(rows, [&](const Row& row) { return row.name.find(part) == row.name.npos; });
  if (!rows.empty() || section.rows != NetworkRows) return rows;
  if (const auto found = FindLayers(part); found.ok())
    rows.push_back(RowOfNetwork({part, "of one's own", found->line, ""}));
  return rows;
}

void PrintAll(const Section& section, const Rows& rows, bool about) {
  std::printf("%s\n", section.name);
  const bool table = !rows.empty() && !rows[0].more.empty() && rows[0].more.size() > 1;
  for (const std::string& line : table ? TableLines(FittingTerminal(rows), about) : ListLines(rows))
    std::printf("%s\n", line.c_str());
  if (table && !about && *section.last != 0) std::printf("\n%s\n", section.last);
  std::printf("\n");
}

Status RunList(const std::string& what, const std::string& name, bool json) {
  if (what.empty() && !json) {
    PrintOverview();
    return Status::Ok();
  }
  nlohmann::json object = nlohmann::json::object();
  for (const Section& section : kSections) {
    if (!what.empty() && what != section.name) continue;
    const Rows rows = RowsOf(section, name);
    if (rows.empty() && !name.empty())
      return {Code::kConfig, Shown(name) + ": in the name of none of the " + what};
    const bool one = !name.empty() && rows.size() <= 3;
    if (!json) PrintAll(section, rows, one);
    for (const Row& row : rows) {
      nlohmann::json entry = {{"name", row.name}, {"about", row.about}};
      for (const auto& [column, text] : row.more) entry[column] = text;
      object[section.name].push_back(std::move(entry));
    }
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
  CLI::App* command = app.add_subcommand("list", "presets, environments, games, algorithms, keys");
  struct Arguments {
    std::string what, name;
    bool json = false;
  };
  auto args = std::make_shared<Arguments>();
  command
      ->add_option(
          "what", args->what,
          "presets, envs, games, algorithms, networks or keys; left out: what there is of each")
      ->check(CLI::IsMember({"presets", "envs", "games", "algorithms", "networks", "keys"}));
  command->add_option("name", args->name,
                      "show only names that contain this; details if they are few");
  command->add_flag("--json", args->json, "last line: one JSON object");
  command->callback([=, &invocation] {
    invocation.run = [=] { return RunList(args->what, args->name, args->json); };
  });
}

}  // namespace samara
