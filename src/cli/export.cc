// samara export and samara import: policies as safetensors files; genomes and configurations of the
// programs of 2018.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/command.h"
#include "config/import_2018.h"
#include "core/config.h"
#include "core/log.h"
#include "core/suggestion.h"
#include "evo/genome/decode.h"
#include "evo/genome/import_uber.h"
#include "play/saved_policy.h"
#include "storage/run_folder.h"

namespace samara {
namespace {

void Announce(bool json, const std::string& file, const Policy& policy) {
  if (json)
    PrintJson({{"file", file}, {"source", policy.source}, {"parameters", ParameterCount(policy)}});
  else
    std::printf("%s: %s, %zu parameters\n", file.c_str(), policy.source.c_str(),
                ParameterCount(policy));
}

Status RunExport(const std::string& run, const LoadOptions& load, const std::string& file,
                 bool json) {
  RETURN_IF_ERROR(CheckOutputFile(file));
  RETURN_IF_ERROR(CheckEnding(Shown(file), file, ".safetensors"));
  ASSIGN_OR_RETURN(const Policy policy, LoadPolicy(run, load));
  RETURN_IF_ERROR(SavePolicy(policy, file));
  Announce(json, file, policy);
  return Status::Ok();
}

// kConfig for an Atari game that there is not; without ale-py no game is checked.
Status CheckGame(const std::string& toml) {
  const std::string game = TextIn(toml, "env.game");
  const auto games = AtariGames();
  if (game.empty() || !games.ok() || games->empty() || std::ranges::count(*games, game) > 0)
    return Status::Ok();
  return {Code::kConfig, "env.game=" + Shown(game) + ": no such game; nearest is " +
                             Nearest(game, *games) + " ('samara list games' shows all)"};
}

// kBadData for a member that an object of JSON text has twice: which one counts is not defined.
Status CheckMembersOnce(const std::string& text) {
  using Json = nlohmann::json;
  std::vector<std::set<std::string>> open;  // names of each object that is being read
  std::string twice;
  const auto visit = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && twice.empty() &&
        !open.back().insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    return true;
  };
  const Json read = Json::parse(text, visit, /*allow_exceptions=*/false);
  if (twice.empty() || read.is_discarded()) return Status::Ok();  // not JSON: the reader says so
  return {Code::kBadData, "the member \"" + Shown(twice) + "\" is given twice; leave one out"};
}

// A configuration becomes a file that samara train takes.
Status ImportConfig(const std::string& file, const std::string& text, const std::string& program,
                    const std::string& out, bool json) {
  if (!out.ends_with(".toml"))
    return {Code::kUsage, "--out " + Shown(out) + ": " + Shown(file) +
                              " is a configuration; expected --out FILE.toml"};
  auto imported = ImportConfig2018(text, program);
  if (!imported.ok()) return imported.status().Annotate(Shown(file));
  RETURN_IF_ERROR(CheckGame(imported->toml).Annotate(Shown(file)));
  for (const std::string& warning : imported->warnings) LogWarning(warning);
  RETURN_IF_ERROR(WriteFileAtomic(Path(out), imported->toml));
  if (json)
    PrintJson(
        {{"file", out}, {"algorithm", imported->algorithm}, {"warnings", imported->warnings}});
  else
    std::printf("%s: run.algorithm=%s; 'samara train %s' runs it\n", out.c_str(),
                imported->algorithm.c_str(), out.c_str());
  return Status::Ok();
}

// The published genome plays the protocol it was evolved under: preset deepga-gpu.
Status RunImport(const std::string& file, const std::string& program, const std::string& out,
                 bool json) {
  RETURN_IF_ERROR(CheckOutputFile(out));
  ASSIGN_OR_RETURN(const std::string text, ReadFile(file, 1 << 20));
  RETURN_IF_ERROR(CheckMembersOnce(text).Annotate(Shown(file)));
  if (out.ends_with(".toml") || IsConfig2018(text))
    return ImportConfig(file, text, program, out, json);
  auto parsed = ImportUber(text);
  if (!parsed.ok()) return parsed.status().Annotate(file);
  const UberElite& published = *parsed;
  Policy policy;
  policy.config.env.game = published.game;
  policy.config.env.preset = "deepga-gpu";
  policy.config.network.name = published.network;
  policy.genome = published.genome;
  policy.source = file;
  ASSIGN_OR_RETURN(policy.network, PolicyNetwork(policy.config));
  RETURN_IF_ERROR(CheckKeys(*policy.genome, policy.network.parameter_count).Annotate(file));
  policy.parameters.resize(policy.network.parameter_count);
  DecodeParameters(*policy.genome, policy.network, policy.parameters);
  RETURN_IF_ERROR(SavePolicy(policy, out));
  Announce(json, out, policy);
  return Status::Ok();
}

}  // namespace

void AddExport(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("export", "write a run's policy as a safetensors file");
  struct Arguments {
    std::string run, file;
    LoadOptions load;
    bool json = false;
  };
  auto args = std::make_shared<Arguments>();
  command->add_option("run", args->run, "run folder")->required();
  command->add_option("file", args->file, "FILE.safetensors")->required();
  AddIndividual(*command, args->load);
  AddAllowNonfinite(*command, args->load);
  command->add_flag("--json", args->json, "last line: one JSON object");
  command->callback([=, &invocation] {
    invocation.run = [=] { return RunExport(args->run, args->load, args->file, args->json); };
  });
}

void AddImport(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("import", "convert a configuration or genome of 2018");
  struct Arguments {
    std::string file, program, out;
    bool json = false;
  };
  auto args = std::make_shared<Arguments>();
  command
      ->add_option("file", args->file,
                   "JSON: a configuration of either program (doc/import.md), or a genome: game, "
                   "network, noise_table, initial_index, mutation_indices, mutation_power")
      ->required();
  command
      ->add_option("--out", args->out,
                   "file to write: FILE.toml of a configuration, a policy file "
                   "of a genome")
      ->required();
  command
      ->add_option("--program", args->program,
                   "program that the configuration was for; default: as its members tell")
      ->check(CLI::IsMember({"ga", "rs", "es", "ns", "nsr"}));
  command->add_flag("--json", args->json, "last line: one JSON object");
  command->callback([=, &invocation] {
    invocation.run = [=] { return RunImport(args->file, args->program, args->out, args->json); };
  });
}

}  // namespace samara
