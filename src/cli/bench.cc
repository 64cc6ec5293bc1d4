// samara bench: named workloads, compared with the machine's limits and with rivals; the signature.
#include "bench/bench.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/peer.h"
#include "cli/command.h"
#include "storage/run_folder.h"

namespace samara {
namespace {

struct BenchCommand {
  std::string what;
  bench::Options options;
  std::string game;     // empty: the workload's own
  std::string as_peer;  // set by `inference` for its own children
  bool signature = false, no_rivals = false, json = false;
};

// Validates an option for CLI11: an error for a text that names no device, else empty.
std::string IsDevice(const std::string& text) {
  return ParseDevice(text).ok() ? "" : text + ": expected cpu, cuda or cuda:N";
}

// The object as scripts read it, or its numbers on lines of their own for people.
void Show(const nlohmann::json& result, bool json) {
  if (json) return PrintJson(result);
  for (const auto& [key, value] : result.items()) {
    if (!value.is_array() && !value.is_object())
      std::printf("  %-36s %s\n", key.c_str(),
                  value.is_string() ? value.get<std::string>().c_str() : value.dump().c_str());
  }
}

Status ListWorkloads(bool json) {
  nlohmann::json workloads = nlohmann::json::array();
  for (const bench::Workload& w : bench::Workloads()) {
    workloads.push_back({{"name", w.name}, {"about", w.about}});
    if (!json) std::printf("  %-14s %s\n", w.name, w.about);
  }
  if (json) PrintJson({{"workloads", workloads}});
  return Status::Ok();
}

// The workloads that read each option.
using Readers = std::vector<std::pair<CLI::Option*, std::vector<std::string_view>>>;

bool Reads(const std::vector<std::string_view>& readers, std::string_view workload) {
  return std::ranges::find(readers, workload) != readers.end();
}

// kUsage names an option that was given and that `reader`, a workload or --signature, ignores.
Status CheckOptions(const Readers& options, const std::string& reader) {
  for (const auto& [option, readers] : options) {
    if (option->count() == 0 || Reads(readers, reader)) continue;
    return {Code::kUsage,
            fmt::format("bench{}{}: {} has no effect here, only with {}; leave it out",
                        reader.empty() ? "" : " ", reader, option->get_name(),
                        fmt::join(readers, ", "))};
  }
  return Status::Ok();
}

Status RunBench(BenchCommand command, const Readers& options, Invocation& invocation) {
  if (!command.as_peer.empty()) return bench::ServeAsPeer(command.as_peer);
  if (command.signature) {
    if (!command.what.empty())
      return {Code::kUsage,
              "bench --signature runs a workload of its own: leave out " + command.what};
    RETURN_IF_ERROR(CheckOptions(options, "--signature"));
    Show(bench::Signature(), command.json);
    return Status::Ok();
  }
  if (command.what.empty()) {
    RETURN_IF_ERROR(CheckOptions(options, ""));
    return ListWorkloads(command.json);
  }
  if (!std::isfinite(command.options.seconds))
    return {Code::kUsage, "--seconds nan: expected 0.05 to 600"};
  if (!std::isfinite(command.options.patience))
    return {Code::kUsage, "--patience nan: expected 1 to 1000"};
  // before anything is measured
  if (!command.options.out.empty()) RETURN_IF_ERROR(CheckOutputFile(command.options.out));
  ASSIGN_OR_RETURN(const bench::Workload* workload, bench::FindWorkload(command.what));
  RETURN_IF_ERROR(CheckOptions(options, workload->name));
  const bool network = workload->name == std::string_view("inference") &&
                       (command.options.model != "null" || !command.options.device.empty());
  if (network || workload->name == std::string_view("vtrace"))
    RETURN_IF_ERROR(NeedAgents(invocation));
  command.options.rivals = !command.no_rivals;
  if (!command.game.empty())
    command.options.game = command.game;
  else if (workload->name == std::string_view("vtrace"))
    command.options.game = "pong";
  command.options.say = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  const bench::OthersShare others;
  ASSIGN_OR_RETURN(nlohmann::json result, workload->run(command.options));
  result["others_share"] = others.get();
  if (result.contains("rival_missing")) {
    invocation.exit_code = static_cast<int>(Code::kUnavailable);
    std::fprintf(stderr, "samara: no rival to compare with: %s\n",
                 result["rival_missing"].get<std::string>().c_str());
  }
  Show(result, command.json);
  return Status::Ok();
}

// `bench WORKLOAD --help`: what it measures, and its own options only.
std::string Help(const CLI::App& app, const std::string& name, CLI::AppFormatMode mode,
                 CLI::Option& what, const Readers& options) {
  const auto& formatter = dynamic_cast<const CLI::Formatter&>(*app.get_parent()->get_formatter());
  const auto workload = what.count() == 0
                            ? Result<const bench::Workload*>(Status(Code::kUsage, "none named"))
                            : bench::FindWorkload(what.results().front());
  if (!workload.ok()) return formatter.make_help(&app, name, mode);
  for (const auto& [option, readers] : options)
    if (!Reads(readers, (*workload)->name)) option->group("");
  what.group("");
  const std::string_view details = (*workload)->details;
  return fmt::format("{}\n\n{}{}Usage: samara bench {} [OPTIONS]\n{}", (*workload)->about, details,
                     details.empty() ? "" : "\n\n", (*workload)->name,
                     formatter.make_groups(&app, mode));
}

}  // namespace

void AddBench(CLI::App& app, Invocation& invocation) {
  CLI::App* sub = app.add_subcommand("bench", "measure speed; without a workload, list them");
  auto command = std::make_shared<BenchCommand>();
  auto options = std::make_shared<Readers>();
  const auto of = [options](std::vector<std::string_view> readers, CLI::Option* option) {
    options->emplace_back(option, std::move(readers));
    return option;
  };
  CLI::Option* const what =
      sub->add_option("what", command->what, "workload; `bench WORKLOAD --help` describes it");
  of({"population", "atari-ga", "env", "vector", "vtrace", "inference", "collectives", "schedule",
      "rollout", "noise", "decode", "es", "es-update", "safe-mutation"},
     sub->add_option("--seconds", command->options.seconds, "seconds of each measurement"))
      ->check(CLI::Range(0.05, 600.0));
  of({"population", "atari-ga", "env", "vector", "vtrace", "schedule"},
     sub->add_option("--game", command->game, "Atari game (default frostbite; vtrace: pong)"));
  of({"vtrace"},
     sub->add_option(
         "--precision", command->options.precision,
         "vtrace: number format of the network's products (default: the fastest of this CPU)"))
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  of({"inference", "population", "replicate", "schedule", "vtrace"},
     sub->add_option("--device", command->options.device,
                     "where networks are computed: cpu, cuda or cuda:N (inference: without "
                     "transports)"))
      ->check(CLI::Validator(IsDevice, "DEVICE"));
  of({"inference"}, sub->add_option("--transport", command->options.transports,
                                    "inference: shared, unix, tcp or tls; may be repeated"));
  of({"inference"},
     sub->add_option("--payload", command->options.payloads, "inference: bytes of an observation"))
      ->check(CLI::Range(1, 1 << 26));
  of({"inference"}, sub->add_option("--streams", command->options.streams,
                                    "inference: number of shared-memory slots, or of connections"))
      ->check(CLI::Range(1, 65536));
  of({"inference"}, sub->add_option("--rows-per-message", command->options.rows_per_message,
                                    "inference: slots per stream, over gRPC"))
      ->check(CLI::Range(1, 4096));
  of({"inference"},
     sub->add_option("--model", command->options.model,
                     "inference: null (no computation), or a network of learning algorithms"))
      ->capture_default_str();
  of({"collectives", "replicate"}, sub->add_option("--ranks", command->options.ranks,
                                                   "collectives, replicate: number of processes"))
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  of({"replicate"}, sub->add_option("--pairs", command->options.pairs,
                                    "replicate: number of runs, each with one of the rival"))
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  of({"replicate"},
     sub->add_option("--mode", command->options.mode,
                     "replicate: mode of the steps that are compared with the rival's"))
      ->check(CLI::IsMember({"exact", "fast"}))
      ->capture_default_str();
  sub->add_option("--as-peer", command->as_peer)->group("");
  of({"time-to-score"}, sub->add_option("--task", command->options.task,
                                        "time-to-score: the task, one of those above"));
  CLI::Option* const rival = of(
      {"time-to-score"},
      sub->add_option("--rival", command->options.rival,
                      "time-to-score: one of the task's rivals; may be repeated (default: all)"));
  of({"time-to-score"}, sub->add_option("--seeds", command->options.seeds,
                                        "time-to-score: number of seeds, from 1 on"))
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  of({"time-to-score"}, sub->add_option("--runs", command->options.runs,
                                        "time-to-score: folder in which the runs stay"));
  of({"time-to-score"},
     sub->add_option("--patience", command->options.patience,
                     "time-to-score: give a rival up after so many times samara's seconds"))
      ->check(CLI::Range(1.0, 1000.0));
  of({"schedule"}, sub->add_option("--out", command->options.out,
                                   "schedule: file of the picture (default schedule.svg)"));
  of({"population", "env", "vector", "vtrace", "replicate", "schedule", "es", "safe-mutation",
      "time-to-score"},
     sub->add_flag("--no-rivals", command->no_rivals, "measure samara alone"))
      ->excludes(rival);
  of({"--signature"},
     sub->add_flag("--signature", command->signature,
                   "print hashes of a fixed small workload, equal on every machine"));
  sub->add_flag("--json", command->json, "last line: one JSON object");
  sub->formatter_fn([=](const CLI::App* self, const std::string& name, CLI::AppFormatMode mode) {
    return Help(*self, name, mode, *what, *options);
  });
  sub->callback([=, &invocation] {
    invocation.run = [=, &invocation] { return RunBench(*command, *options, invocation); };
  });
}

}  // namespace samara
