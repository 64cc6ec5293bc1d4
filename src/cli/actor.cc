// samara actor: environments of this machine, stepped for a learner process on another one.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "core/clock.h"
#include "core/cpu.h"
#include "core/log.h"
#include "core/signals.h"
#include "fleet/named_environment.h"
#include "fleet/remote/address.h"
#include "fleet/remote/remote.h"

namespace samara {
namespace {

struct ActorArguments {
  RemoteActorOptions remote;
  std::string environment, preset = "ale-v5";
  std::vector<std::string> overrides;
  uint32_t slots = 0, threads = 0;
  bool at_once = false, json = false;
};

// `make`, until the time for the first connection is over and the learner process answers no knock:
// thousands of environments may take longer than that.
EnvironmentFactory WhileThereIsTime(EnvironmentFactory make, const RemoteActorOptions& remote) {
  return [make = std::move(make), remote, start = Now(),
          knocked = false]() mutable -> Result<std::unique_ptr<Environment>> {
    if (!knocked && SecondsSince(start) > remote.connect_timeout) {
      ASSIGN_OR_RETURN(const RemoteAddress address, ParseAddress(remote.address));
      knocked = true;
      if (!Answers(address, /*seconds=*/1))
        return Status(
            Code::kUnavailable,
            fmt::format("{}: no learner process within {:g} s: is `samara train --listen` "
                        "running there?",
                        Shown(remote.address), remote.connect_timeout));
    }
    return make();
  };
}

// The environments that the arguments name, as many as they say.
Result<std::unique_ptr<Fleet>> MakeLocalFleet(const ActorArguments& args) {
  const uint32_t workers = args.threads > 0 ? args.threads : Cores();
  ASSIGN_OR_RETURN(const GymOptions gym, ParseGymOptions(args.overrides));
  ASSIGN_OR_RETURN(NamedEnvironment named, FindEnvironment(args.environment, args.preset, gym));
  if (named.native)
    named.native = WhileThereIsTime(named.native, args.remote);
  else if (args.at_once)
    return Status(Code::kConfig, "--inline: expected a native environment (`samara list envs`)");
  ActorFleetOptions options;
  options.slots = args.slots > 0 ? args.slots : 2 * workers;
  return MakeNamedFleet(named, args.at_once ? 0 : workers, options);
}

Status RunActor(ActorArguments args) {
  InstallSignalHandlers();
  const SteadyTime start = Now();
  ASSIGN_OR_RETURN(const auto fleet, MakeLocalFleet(args));
  args.remote.stop = StopRequested;
  const GracefulStop looked_at;
  ASSIGN_OR_RETURN(const RemoteActorResult result, RunRemoteActor(*fleet, args.remote));
  if (args.json) {
    PrintJson({{"environment", fleet->spec().id},
               {"slots", fleet->slots()},
               {"steps", result.steps},
               {"connections", result.connections},
               {"seconds", SecondsSince(start)}});
  } else {
    std::printf("training has finished: %llu steps\n",
                static_cast<unsigned long long>(result.steps));
  }
  return Status::Ok();
}

}  // namespace

void AddActor(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("actor", "step environments here for a learner elsewhere");
  auto args = std::make_shared<ActorArguments>();
  command
      ->add_option("--connect", args->remote.address,
                   "address of the learner process: unix:/folder/socket or HOST:PORT")
      ->required();
  command
      ->add_option("--env", args->environment,
                   "atari/GAME, a native id, dummy, or any id of Gymnasium")
      ->required();
  AddGymOptions(*command, args->overrides);
  command->add_option("--preset", args->preset, "Atari preset; `samara list envs`")
      ->capture_default_str();
  command->add_option("--slots", args->slots, "number of environments; default: two per thread")
      ->check(CLI::Range(1, 65536));
  command
      ->add_option("--threads", args->threads,
                   "number of threads, or of Python processes; default: one per core")
      ->check(CLI::Range(1, 4096));
  command->add_flag("--inline", args->at_once,
                    "step native environments on the thread that receives their actions: faster "
                    "where a step takes less time than a wake-up");
  command->add_option("--token-file", args->remote.token_file,
                      "token file, the same as the learner process's");
  command->add_option("--ca", args->remote.ca,
                      "TLS: certificate authority of the learner process's certificate (PEM)");
  command->add_option(
      "--certificate", args->remote.certificate,
      "this actor's certificate, which learner processes on other machines require (PEM)");
  command->add_option("--key", args->remote.key, "private key of the certificate (PEM)");
  command
      ->add_option("--connect-timeout", args->remote.connect_timeout,
                   "seconds to wait for the first connection; then exit 69")
      ->capture_default_str()
      ->check(InRange(0.0, 1e7));
  command
      ->add_option("--reconnect-timeout", args->remote.reconnect_timeout,
                   "seconds to reconnect after a connection was lost; then exit 69")
      ->capture_default_str()
      ->check(InRange(0.0, 1e7));
  command->add_flag("--json", args->json, "last line: one JSON object");
  command->callback([=, &invocation] { invocation.run = [=] { return RunActor(*args); }; });
}

}  // namespace samara
