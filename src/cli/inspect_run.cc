// samara hash, samara fsck, samara report: looking at run folders.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "config/experiment.h"
#include "core/log.h"
#include "report/metrics_csv.h"
#include "report/report.h"
#include "storage/agent_state.h"
#include "storage/evolution_journal.h"
#include "storage/fsck.h"
#include "storage/run_folder.h"

namespace samara {
namespace {

Status RunAgentHash(const RunFolder& folder, bool json) {
  ASSIGN_OR_RETURN(const StoredCheckpoint latest, LatestAgent(folder, OnBadCheckpoint::kRefuse));
  ASSIGN_OR_RETURN(const std::string hash, ParameterHash(latest.info, latest.path));
  if (json)
    PrintJson({{"update", latest.info.step}, {"parameter_hash", hash}});
  else
    std::printf("update %llu %s\n", static_cast<unsigned long long>(latest.info.step),
                hash.c_str());
  return Status::Ok();
}

Status RunHash(const std::string& run, int64_t generation, bool json) {
  ASSIGN_OR_RETURN(const auto folder, RunFolder::Open(run, RunFolder::Mode::kRead));
  ExperimentConfig config;
  config.ChooseAlgorithm(folder->config_toml());
  if (config.Learns()) {
    if (generation < 0) return RunAgentHash(*folder, json);
    return {Code::kUsage, "--generation " + std::to_string(generation) + ": " + run +
                              " learns by updates; leave it out for the hash of its latest "
                              "checkpoint"};
  }
  ASSIGN_OR_RETURN(const FoundGeneration found, FindGeneration(run, generation));
  const std::string hash = Hex(found.summary.population_hash);
  if (json)
    PrintJson({{"generation", found.summary.generation}, {"population_hash", hash}});
  else
    std::printf("generation %llu %s\n", static_cast<unsigned long long>(found.summary.generation),
                hash.c_str());
  return Status::Ok();
}

Status RunFsck(const std::string& run, bool json, Invocation& invocation) {
  ASSIGN_OR_RETURN(const FsckReport report, Fsck(run));
  const nlohmann::json object = {{"sound", report.status().ok()},
                                 {"files_verified", report.files_verified},
                                 {"problems", report.problems},
                                 {"set_aside", report.set_aside},
                                 {"notes", report.notes}};
  if (!json) {
    for (const auto& line : report.problems) std::printf("problem: %s\n", line.c_str());
    for (const auto& line : report.set_aside) std::printf("quarantined: %s\n", line.c_str());
    for (const auto& line : report.notes) std::printf("note: %s\n", line.c_str());
  }
  invocation.found = object;
  RETURN_IF_ERROR(report.status());
  if (json)
    PrintJson(object);
  else
    std::printf("%s: sound, %d files verified\n", run.c_str(), report.files_verified);
  return Status::Ok();
}

// The runs of a folder that --seeds or --sweep made, in its place.
std::vector<Path> Unfolded(const std::vector<std::string>& folders) {
  std::vector<Path> runs;
  for (const std::string& folder : folders) {
    const std::vector<Path> inside = RunsIn(folder);
    runs.insert(runs.end(), inside.begin(), inside.end());
    if (inside.empty()) runs.emplace_back(folder);
  }
  return runs;
}

// A report of several runs goes to this folder, where a page of the user's own may lie.
Status CheckOwnReport(const std::string& file) {
  const auto page = ReadFile(Path(file));
  if (!page.ok() || IsReport(*page)) return Status::Ok();
  return {Code::kCannotCreate, file + ": exists and is no report of samara's; choose --out FILE"};
}

Status RunReport(const std::vector<std::string>& folders, std::string out, const std::string& curve,
                 const std::string& csv, bool json) {
  if (!out.empty()) RETURN_IF_ERROR(CheckOutputFile(out, "report.html"));
  const std::vector<Path> paths = Unfolded(folders);
  if (out.empty() && folders.size() == 1) out = (Path(folders[0]) / "report.html").string();
  if (out.empty()) RETURN_IF_ERROR(CheckOwnReport(out = "report.html"));
  if (!curve.empty()) {
    RETURN_IF_ERROR(CheckOutputFile(curve, "learning_curve.svg"));
    RETURN_IF_ERROR(CheckEnding("--curve " + Shown(curve), curve, ".svg"));
  }
  if (!csv.empty()) RETURN_IF_ERROR(CheckOutputFile(csv, "metrics.csv"));
  RETURN_IF_ERROR(WriteReport(paths, Path(out)));
  if (!curve.empty()) RETURN_IF_ERROR(WriteLearningCurve(paths, Path(curve)));
  if (!csv.empty()) RETURN_IF_ERROR(WriteMetricsCsv(paths, Path(csv)));
  if (json) {
    nlohmann::json object = {{"file", out}};
    if (!curve.empty()) object["curve"] = curve;
    if (!csv.empty()) object["csv"] = csv;
    PrintJson(object);
    return Status::Ok();
  }
  std::printf("report: %s\n", out.c_str());
  if (!curve.empty()) std::printf("curve: %s\n", curve.c_str());
  if (!csv.empty()) std::printf("table: %s\n", csv.c_str());
  return Status::Ok();
}

}  // namespace

void AddFsck(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("fsck", "verify a run's files; exit 0 sound, 65 damaged");
  struct Arguments {
    std::string run;
    bool json = false;
  };
  auto args = std::make_shared<Arguments>();
  command->add_option("run", args->run, "run folder")->required();
  command->add_flag("--json", args->json, "last line: one JSON object");
  command->callback([=, &invocation] {
    invocation.run = [=, &invocation] { return RunFsck(args->run, args->json, invocation); };
  });
}

void AddHash(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      app.add_subcommand("hash", "print the hash of a population or the last agent");
  struct Arguments {
    std::string run;
    int64_t generation = -1;
    bool json = false;
  };
  auto args = std::make_shared<Arguments>();
  command->add_option("run", args->run, "run folder")->required();
  command->add_option("--generation", args->generation, "generation number; default: the last")
      ->check(CLI::Range(1, 1'000'000'000));
  command->add_flag("--json", args->json, "last line: one JSON object");
  command->callback([=, &invocation] {
    invocation.run = [=] { return RunHash(args->run, args->generation, args->json); };
  });
}

void AddReport(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("report", "write an HTML page about runs: curves, tables");
  struct Arguments {
    std::vector<std::string> runs;
    std::string out, curve, csv;
    bool json = false;
  };
  auto args = std::make_shared<Arguments>();
  command->add_option("runs", args->runs, "run folders, or those of --seeds")->required();
  command->add_option("--out", args->out,
                      "HTML file; default: RUN/report.html, for several runs report.html");
  command->add_option("--curve", args->curve,
                      "also write the learning curve as SVG; of several runs the mean");
  command->add_option("--csv", args->csv,
                      "also write every line of metrics of the runs as one table (CSV)");
  command->add_flag("--json", args->json, "last line: one JSON object");
  command->callback([=, &invocation] {
    invocation.run = [=] {
      return RunReport(args->runs, args->out, args->curve, args->csv, args->json);
    };
  });
}

}  // namespace samara
