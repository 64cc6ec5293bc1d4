// samara export and samara import: policies as safetensors files, and the originals' genomes as
// policies.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
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
  ASSIGN_OR_RETURN(const Policy policy, LoadPolicy(run, load));
  RETURN_IF_ERROR(SavePolicy(policy, file));
  Announce(json, file, policy);
  return Status::Ok();
}

// The published genome plays the protocol it was evolved under: preset deepga-gpu.
Status RunImport(const std::string& file, const std::string& out, bool json) {
  RETURN_IF_ERROR(CheckOutputFile(out));
  ASSIGN_OR_RETURN(const std::string text, ReadFile(file, 1 << 20));
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
  Materialise(*policy.genome, policy.network, policy.parameters);
  RETURN_IF_ERROR(SavePolicy(policy, out));
  Announce(json, out, policy);
  return Status::Ok();
}

}  // namespace

void AddExport(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand(
      "export",
      "write a run's policy as a safetensors file with the torch module's names and shapes");
  struct Arguments {
    std::string run, individual = "elite", file;
    LoadOptions load;
    bool json = false;
  };
  auto args = std::make_shared<Arguments>();
  command->add_option("run", args->run, "run folder")->required();
  command->add_option("file", args->file, "FILE.safetensors")->required();
  command->add_option("--individual", args->individual, "policy of the run to export")
      ->capture_default_str()
      ->check(CLI::IsMember({"elite"}));
  command->add_flag("--allow-nonfinite", args->load.allow_nonfinite, kAllowNonfinite);
  command->add_flag("--json", args->json, "last line: one JSON object");
  command->callback([=, &invocation] {
    invocation.run = [=] { return RunExport(args->run, args->load, args->file, args->json); };
  });
}

void AddImport(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("import", "convert a published genome into a policy file");
  struct Arguments {
    std::string file, out;
    bool json = false;
  };
  auto args = std::make_shared<Arguments>();
  command
      ->add_option("file", args->file,
                   "JSON: game, network, initial_index, mutation_indices, mutation_power")
      ->required();
  command->add_option("--out", args->out, "policy file to write")->required();
  command->add_flag("--json", args->json, "last line: one JSON object");
  command->callback([=, &invocation] {
    invocation.run = [=] { return RunImport(args->file, args->out, args->json); };
  });
}

}  // namespace samara
