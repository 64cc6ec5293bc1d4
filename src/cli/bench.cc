// samara bench: named workloads beside the machine's limits and beside rivals; the signature.
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

namespace samara {
namespace {

struct BenchCommand {
  std::string what;
  bench::Options options;
  std::string game;     // empty: the workload's own
  std::string as_peer;  // set by `inference` for its own children
  bool signature = false, no_rivals = false, json = false;
};

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

Status RunBench(BenchCommand command, Invocation& invocation) {
  if (!command.as_peer.empty()) return bench::ServeAsPeer(command.as_peer);
  if (command.signature) {
    Show(bench::Signature(), command.json);
    return Status::Ok();
  }
  if (command.what.empty()) return ListWorkloads(command.json);
  if (!std::isfinite(command.options.seconds))
    return {Code::kUsage, "--seconds nan: expected 0.05 to 600"};
  // before anything is measured
  const Path folder = Path(command.options.out).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder))
    return {Code::kCannotCreate,
            "--out " + command.options.out + ": no folder " + folder.string() + "; make it first"};
  ASSIGN_OR_RETURN(const bench::Workload* workload, bench::FindWorkload(command.what));
  const bool network =
      workload->name == std::string_view("inference") && command.options.model != "null";
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

// Whose each option is; of all workloads where it is not here.
using Owners = std::vector<std::pair<CLI::Option*, std::vector<std::string_view>>>;

// `bench WORKLOAD --help`: what it measures, and its own options only.
std::string Help(const CLI::App& app, const std::string& name, CLI::AppFormatMode mode,
                 CLI::Option& what, const Owners& owners) {
  const CLI::Formatter formatter;
  const auto workload = what.count() == 0
                            ? Result<const bench::Workload*>(Status(Code::kUsage, "none named"))
                            : bench::FindWorkload(what.results().front());
  if (!workload.ok()) return formatter.make_help(&app, name, mode);
  for (const auto& [option, names] : owners)
    if (std::find(names.begin(), names.end(), (*workload)->name) == names.end()) option->group("");
  what.group("");
  const std::string_view details = (*workload)->details;
  return fmt::format("{}\n\n{}{}Usage: samara bench {} [OPTIONS]\n{}", (*workload)->about, details,
                     details.empty() ? "" : "\n\n", (*workload)->name,
                     formatter.make_groups(&app, mode));
}

}  // namespace

void AddBench(CLI::App& app, Invocation& invocation) {
  CLI::App* sub = app.add_subcommand(
      "bench",
      "achieved speed beside the machine's own limit; lists the workloads when none is named");
  auto command = std::make_shared<BenchCommand>();
  auto owners = std::make_shared<Owners>();
  const auto of = [owners](std::vector<std::string_view> names, CLI::Option* option) {
    owners->emplace_back(option, std::move(names));
    return option;
  };
  CLI::Option* const what =
      sub->add_option("what", command->what, "a workload; `bench WORKLOAD --help` tells of one");
  of({"population", "atari-ga", "env", "vtrace", "inference", "collectives", "schedule", "rollout",
      "noise", "materialise"},
     sub->add_option("--seconds", command->options.seconds, "of each measurement"))
      ->check(CLI::Range(0.05, 600.0));
  of({"population", "atari-ga", "env", "vtrace", "schedule"},
     sub->add_option(
         "--game", command->game,
         "Atari game of the workloads that play one (default frostbite; vtrace: pong)"));
  of({"vtrace"},
     sub->add_option("--precision", command->options.precision,
                     "vtrace: of the network's products (default: the quickest of this CPU)"))
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  of({"inference"}, sub->add_option("--transport", command->options.transports,
                                    "inference: shared, unix, tcp or tls; may be repeated"));
  of({"inference"},
     sub->add_option("--payload", command->options.payloads, "inference: bytes of an observation"))
      ->check(CLI::Range(1, 1 << 26));
  of({"inference"}, sub->add_option("--streams", command->options.streams,
                                    "inference: slots of shared memory, or connections"))
      ->check(CLI::Range(1, 65536));
  of({"inference"}, sub->add_option("--rows-per-message", command->options.rows_per_message,
                                    "inference: slots of a stream, over gRPC"))
      ->check(CLI::Range(1, 4096));
  of({"inference"}, sub->add_option("--model", command->options.model,
                                    "inference: null, which costs nothing, or a network of agents"))
      ->capture_default_str();
  of({"collectives", "replicate"},
     sub->add_option("--ranks", command->options.ranks, "collectives, replicate: processes"))
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  of({"replicate"},
     sub->add_option("--mode", command->options.mode, "replicate: of the steps beside the rival's"))
      ->check(CLI::IsMember({"exact", "fast"}))
      ->capture_default_str();
  sub->add_option("--as-peer", command->as_peer)->group("");
  of({"schedule"}, sub->add_option("--out", command->options.out,
                                   "where the picture of `schedule` goes (default schedule.svg)"));
  of({"population", "env", "vtrace", "replicate", "schedule"},
     sub->add_flag("--no-rivals", command->no_rivals, "measure samara alone"));
  of({}, sub->add_flag("--signature", command->signature,
                       "hashes of a fixed small workload: equal on every machine"));
  sub->add_flag("--json", command->json, "last line: one JSON object");
  sub->formatter_fn([=](const CLI::App* self, std::string name, CLI::AppFormatMode mode) {
    return Help(*self, name, mode, *what, *owners);
  });
  sub->callback([=, &invocation] {
    invocation.run = [=, &invocation] { return RunBench(*command, invocation); };
  });
}

}  // namespace samara
