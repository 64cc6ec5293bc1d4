// samara launch: the ranks of a replicated program on this host.
#include "replica/rendezvous/launch.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "core/clock.h"

namespace samara {
namespace {

struct LaunchArguments {
  LaunchOptions options;
  double grace = 30;
  bool json = false;
};

Status RunLaunch(LaunchArguments args, Invocation& invocation) {
  LaunchOptions& options = args.options;
  if (options.program.empty())
    return {Code::kUsage, "launch: which program? `samara launch -n 4 PROGRAM [ARGUMENTS...]`"};
  if (options.program[0].starts_with("-"))
    return {Code::kUsage, options.program[0] +
                              ": unknown option of launch, whose own options come before PROGRAM "
                              "('samara launch --help' shows them)"};
  options.grace = std::chrono::milliseconds(static_cast<int64_t>(args.grace * 1000));
  options.umask = invocation.umask;  // the user's programs know nothing of ours
  const SteadyTime start = Now();
  ASSIGN_OR_RETURN(const LaunchResult result, Launch(options));
  invocation.exit_code = result.exit_code;
  if (!args.json) return Status::Ok();
  nlohmann::json failed;  // null: none
  if (result.failed_rank >= 0) failed = result.failed_rank;
  PrintJson({{"ranks", options.ranks},
             {"restarts", result.restarts},
             {"exit", result.exit_code},
             {"seconds", SecondsSince(start)},
             {"failed_rank", failed}});
  return Status::Ok();
}

}  // namespace

void AddLaunch(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      app.add_subcommand("launch", "start ranks of a replicated program on this host");
  command->prefix_command();  // from PROGRAM on nothing is ours
  auto args = std::make_shared<LaunchArguments>();
  LaunchOptions& options = args->options;
  command->add_option("-n,--ranks", options.ranks, "number of ranks, each a process")
      ->required()
      ->check(CLI::Range(1, 4096));
  command
      ->add_option("--restarts", options.restarts,
                   "number of restarts of all ranks after a failure")
      ->capture_default_str()
      ->check(CLI::Range(0, 1'000'000));
  command->add_option("--address", options.address,
                      "address of this host for the ranks; default: the loopback");
  command->add_option("--port", options.port, "port for the ranks; default: a free one")
      ->check(CLI::Range(1, 65535));
  command->add_option("--logs", options.logs,
                      "folder for one log file per rank, instead of standard error");
  command
      ->add_option(
          "--grace", args->grace,
          "seconds that the other ranks have to end after a failure before they are killed")
      ->capture_default_str()
      ->check(InRange(0.0, 1e6));
  command->add_flag("--json", args->json,
                    "before PROGRAM: print one JSON object after the program's output");
  command->footer(
      "Standard output is rank 0's; every other line goes to standard error as \"[rank 1] ...\".\n"
      "Ranks receive torchrun's environment variables (RANK, WORLD_SIZE, MASTER_ADDR, ...):\n"
      "doc/launching.md.");
  command->callback([=, &invocation] {
    args->options.program = command->remaining();
    invocation.run = [=, &invocation] { return RunLaunch(*args, invocation); };
  });
}

}  // namespace samara
