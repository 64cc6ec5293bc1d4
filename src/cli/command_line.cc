// Parses, runs one subcommand, turns its status into a line and an exit code.
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "core/leave.h"
#include "core/message.h"
#include "core/resources.h"
#include "core/signals.h"
#include "replica/rendezvous/world.h"

namespace samara {
namespace {

// `found`: members of the object besides the error.
int Fail(const Status& status, bool json, nlohmann::json found = nlohmann::json::object()) {
  // a stop from now on is late; a second one cuts short what is printed here
  IgnoreNextStop();
  LeaveSilently();
  const int exit_code = static_cast<int>(status.code());
  const std::string line = ShownMessage(status.message());
  std::fprintf(stderr, "samara: %s\n", line.c_str());
  found["error"] = line, found["exit"] = exit_code;
  if (json) PrintJson(found);
  return exit_code;
}

}  // namespace

int RunCommandLine(int argc, char** argv) {
  // rank 0 says why all ranks end
  if (const auto world = DiscoverWorld(ProcessEnvironment()); world.ok() && world->rank > 0)
    StopSilently();
  bool json = false;
  for (int i = 1; i < argc; ++i) json |= std::string_view(argv[i]) == "--json";
  if (json) LeaveWithJson();
  InstallStopHandlers();  // a signal that was held back ends the process here
  const mode_t umask =
      ::umask(077);  // runs are their owner's alone, also what libraries and actors write there
  CLI::App app("samara trains many agents cheaply and reproducibly.", "samara");
  app.require_subcommand(1);
  app.set_version_flag("--version", VersionText());
  Invocation invocation;
  invocation.arguments = argv;
  invocation.umask = umask;
  AddAllCommands(app, invocation);
  app.footer(
      "First steps:\n"
      "  samara train classic/cartpole-ga    a second of training, then a report\n"
      "  samara list presets                 what else there is to train\n"
      "  samara COMMAND --help               options and examples of a command");
  std::vector<std::string> words(argv, argv + argc);
  TranslateWords(words);
  std::vector<char*> translated;
  translated.reserve(words.size());
  for (std::string& word : words) translated.push_back(word.data());
  argc = static_cast<int>(translated.size()), argv = translated.data();
  if (argc == 1) {  // asked for nothing: the same help as for it
    std::fputs(app.help().c_str(), stdout);
    return static_cast<int>(Code::kUsage);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::ParseError& error) {
    return Fail({Code::kUsage, UsageMessage(app, error.what(), argc, argv)}, json);
  }
  try {
    Status status = invocation.run();
    // what scripts read may not have arrived
    if (status.ok() && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0))
      status = {Code::kIoError, "standard output cannot be written: is its disk full?"};
    return status.ok() ? invocation.exit_code : Fail(status, json, std::move(invocation.found));
  } catch (const std::exception& error) {
    return Fail(StatusOf(error), json);
  }
}

}  // namespace samara
