// samara inspect: the policies that an evolution's run holds, and where its best one comes from.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "config/experiment.h"
#include "play/lineage.h"
#include "play/rebuilt_run.h"
#include "storage/run_folder.h"

namespace samara {
namespace {

nlohmann::json OrNull(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
}

nlohmann::json OrNull(std::optional<uint64_t> number) {
  return number ? nlohmann::json(*number) : nlohmann::json();
}

std::string OrDash(std::optional<uint64_t> number) {
  return number ? std::to_string(*number) : "-";
}

std::string OrDash(double value) { return std::isfinite(value) ? fmt::format("{:g}", value) : "-"; }

nlohmann::json ToJson(const Ancestor& a) {
  return {{"generation", OrNull(a.generation)},
          {"individual", OrNull(a.individual)},
          {"frames", a.generation ? nlohmann::json(a.frames) : nlohmann::json()},
          {"fitness", OrNull(a.fitness)},
          {"mutations", a.mutations},
          {"key", fmt::format("{:016x}", a.key)},
          {"power", a.power}};
}

nlohmann::json ToJson(const PastCentre& c) {
  return {{"generation", c.generation}, {"frames", c.frames},     {"mean", OrNull(c.mean)},
          {"length", c.length},         {"step", OrNull(c.step)}, {"distance", c.distance}};
}

// Without the column of individuals where none has a number.
void Print(const std::vector<Ancestor>& ancestors) {
  const bool numbered =
      std::ranges::any_of(ancestors, [](const Ancestor& a) { return a.individual.has_value(); });
  std::printf("generation%s        frames   fitness  mutations  key               power\n",
              numbered ? "  individual" : "");
  for (const Ancestor& a : ancestors) {
    const std::optional<uint64_t> frames = a.generation ? std::optional(a.frames) : std::nullopt;
    std::printf("%10s%s  %12s  %8s  %9zu  %016llx  %g\n", OrDash(a.generation).c_str(),
                numbered ? fmt::format("  {:>10}", OrDash(a.individual)).c_str() : "",
                OrDash(frames).c_str(), OrDash(a.fitness).c_str(), a.mutations,
                static_cast<unsigned long long>(a.key), a.power);
  }
}

void Print(const Lineage& lineage) {
  if (!lineage.ancestors.empty()) {
    Print(lineage.ancestors);
  } else {
    std::printf("generation        frames      mean      length        step    distance\n");
    for (const PastCentre& c : lineage.centres)
      std::printf("%10llu  %12llu  %8s  %10.6g  %10s  %10.6g\n",
                  static_cast<unsigned long long>(c.generation),
                  static_cast<unsigned long long>(c.frames), OrDash(c.mean).c_str(), c.length,
                  OrDash(c.step).c_str(), c.distance);
  }
}

// kUsage for a run that learns by gradients: it keeps one agent and no journal.
Status CheckEvolves(const std::string& run) {
  ASSIGN_OR_RETURN(const auto folder, RunFolder::Open(run, RunFolder::Mode::kRead));
  ExperimentConfig config;
  config.ChooseAlgorithm(folder->config_toml());
  if (!config.Learns()) return Status::Ok();
  return {Code::kUsage,
          fmt::format("{0} is a learning run; inspect lists the policies of an evolution: 'samara "
                      "eval {0}', 'samara play {0}' and 'samara export {0} FILE' take its newest "
                      "agent, with --individual best the best of its evaluations",
                      run)};
}

Status RunLineage(const std::string& run, int64_t generation, bool as_json) {
  ASSIGN_OR_RETURN(const Lineage lineage, ReadLineage(run, generation));
  if (!as_json) {
    Print(lineage);
    return Status::Ok();
  }
  nlohmann::json object = {{"run", run},
                           {"algorithm", lineage.algorithm},
                           {"generation", lineage.generation},
                           {"best_mean", OrNull(lineage.best_mean)},
                           {"ancestors", nlohmann::json::array()},
                           {"centres", nlohmann::json::array()}};
  for (const Ancestor& a : lineage.ancestors) object["ancestors"].push_back(ToJson(a));
  for (const PastCentre& c : lineage.centres) object["centres"].push_back(ToJson(c));
  PrintJson(object);
  return Status::Ok();
}

Status RunCandidates(const std::string& run, int64_t generation, bool as_json) {
  ASSIGN_OR_RETURN(const FoundGeneration found, FindGeneration(run, generation));
  ASSIGN_OR_RETURN(const auto rebuilt, RebuiltRun::Open(run));
  ASSIGN_OR_RETURN(const auto records, ReadGenerations(run, generation));
  ASSIGN_OR_RETURN(const auto algorithm, rebuilt->At(records));
  nlohmann::json candidates = nlohmann::json::array();
  for (const NamedCandidate& named : algorithm->Candidates()) {
    nlohmann::json row = {{"name", named.name}, {"fitness", OrNull(named.fitness)}};
    if (const auto* genome = std::get_if<Genome>(&named.candidate))
      row["mutations"] = genome->mutations.size();
    candidates.push_back(std::move(row));
  }
  ASSIGN_OR_RETURN(const uint64_t members, rebuilt->MembersOfLast(records));
  if (as_json) {
    PrintJson({{"run", run},
               {"algorithm", found.record.algorithm},
               {"generation", found.summary.generation},
               {"frames", found.summary.frames},
               {"parameters", rebuilt->network().parameter_count},
               {"individuals", members},
               {"fitness", found.record.fitness},
               {"candidates", candidates}});
    return Status::Ok();
  }
  std::printf(
      "%s: %s, generation %llu, %llu frames, %zu parameters\n", run.c_str(),
      found.record.algorithm.c_str(), static_cast<unsigned long long>(found.summary.generation),
      static_cast<unsigned long long>(found.summary.frames), rebuilt->network().parameter_count);
  for (const nlohmann::json& row : candidates)
    std::printf("  %-12s fitness %s%s\n", row["name"].get<std::string>().c_str(),
                row["fitness"].is_null() ? "-" : OrDash(row["fitness"].get<double>()).c_str(),
                row.contains("mutations")
                    ? fmt::format(", {} mutations", row["mutations"].get<size_t>()).c_str()
                    : "");
  if (members > 0)
    std::printf("  0 to %-7llu the individuals that played generation %llu\n",
                static_cast<unsigned long long>(members - 1),
                static_cast<unsigned long long>(found.summary.generation));
  std::printf("'samara export %s FILE --individual NAME' writes one\n", run.c_str());
  return Status::Ok();
}

}  // namespace

void AddInspect(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand(
      "inspect", "list the policies that an evolution's run holds, or the elite's ancestors");
  struct Arguments {
    std::string run;
    int64_t generation = -1;
    bool lineage = false, json = false;
  };
  auto args = std::make_shared<Arguments>();
  command->add_option("run", args->run, "run folder")->required();
  command->add_flag("--lineage", args->lineage,
                    "list the elite's ancestors, rebuilt from the journal; of evolution strategies "
                    "the centre's values by generation");
  command->add_option("--generation", args->generation, "generation number; default: the last")
      ->check(CLI::Range(1, 1'000'000'000));
  command->add_flag("--json", args->json, "last line: one JSON object");
  command->callback([=, &invocation] {
    invocation.run = [=]() -> Status {
      RETURN_IF_ERROR(CheckEvolves(args->run));
      return args->lineage ? RunLineage(args->run, args->generation, args->json)
                           : RunCandidates(args->run, args->generation, args->json);
    };
  });
}

}  // namespace samara
