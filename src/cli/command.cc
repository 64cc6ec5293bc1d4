#include "cli/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "core/config.h"
#include "core/log.h"
#include "core/signals.h"
#include "rl/algorithms/registry.h"
#include "storage/build_info.h"

namespace samara {

// in the order a newcomer meets them
void AddAllCommands(CLI::App& app, Invocation& invocation) {
  for (const auto add : {AddTrain, AddEval, AddPlay, AddReport, AddList, AddCheck, AddNew,
                         AddDoctor, AddFsck, AddHash, AddInspect, AddExport, AddImport, AddLaunch,
                         AddAct, AddActor, AddToken, AddCertificates, AddBench}) {
    add(app, invocation);
  }
  // an empty word is a script's unset variable, never meant
  const auto something = [](const std::string& text) {
    return text.empty() ? "expected a value, not an empty text" : std::string();
  };
  for (CLI::App* command : app.get_subcommands({})) {
    for (CLI::Option* option : command->get_options())
      if (option->get_expected_max() > 0) option->check(something);
  }
}

std::string ProgramWithAgents() {
  if (HasAgents()) return {};
  std::error_code error;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", error);
  // a program outside this tree has algorithms and environments that samara-torch lacks
  if (here.filename() != "samara") return {};
  return (here.parent_path() / "samara-torch").string();
}

Status NeedAgents(const Invocation& invocation) {
  if (HasAgents()) return Status::Ok();
  const std::string there = ProgramWithAgents();
  if (there.empty())
    return {Code::kConfig,
            "this program is linked without torch, which learning agents and runs on several ranks "
            "need; link samara::learning"};
  std::fflush(nullptr);
  HoldStopSignals();  // until that one has its handlers, which takes it a third of a second
  execv(there.c_str(), invocation.arguments);
  const int error = errno;
  HoldStopSignals(false);
  return {Code::kConfig,
          there + ": " + std::strerror(error) +
              ": learning agents and runs on several ranks need it; build with -DSAMARA_TORCH=ON"};
}

void AddLoading(CLI::App& command, LoadOptions& options) {
  command.add_flag("--trust", options.trust,
                   "also play a policy file that chooses code (env.id=module:Name) and a run that "
                   "another user owns or may write to");
  AddAllowNonfinite(command, options);
}

void AddAllowNonfinite(CLI::App& command, LoadOptions& options) {
  options.advise_nonfinite = true;
  command.add_flag("--allow-nonfinite", options.allow_nonfinite,
                   "accept weights that are not finite numbers");
}

void AddIndividual(CLI::App& command, LoadOptions& options) {
  command
      .add_option("--individual", options.individual,
                  "policy of an evolution's run: elite, the number of an individual, or another "
                  "name that 'samara inspect RUN' lists; best: of a learning run's evaluations")
      ->capture_default_str();
  command
      .add_option("--generation", options.generation,
                  "generation of an evolution's run that the policy is of; default: the last")
      ->check(CLI::Range(1, 1'000'000'000));
}

void AddGymOptions(CLI::App& command, std::vector<std::string>& overrides) {
  command.add_option("options", overrides,
                     "of a Gymnasium environment: env.kwargs.NAME=VALUE ..., env.wrappers=M:CLASS");
}

Result<GymOptions> ParseGymOptions(const std::vector<std::string>& overrides) {
  EnvironmentConfig env;
  ConfigTable table;
  BindGymOptions(table, env);
  for (const std::string& word : overrides) RETURN_IF_ERROR(table.Override(word));
  return GymOptionsOf(env);
}

void PrintJson(const nlohmann::json& object) {
  // replace: text from a file may hold bytes that are no UTF-8
  std::printf("%s\n",
              object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  std::fflush(stdout);
}

Result<std::vector<int64_t>> ParseRange(const std::string& option, const std::string& text,
                                        int64_t max) {
  int64_t first = 0, last = 0;
  const char* end = text.data() + text.size();
  auto parsed = std::from_chars(text.data(), end, first);
  last = first;
  const bool range =
      parsed.ec == std::errc() && std::string_view(parsed.ptr, end).starts_with("..");
  if (range) parsed = std::from_chars(parsed.ptr + 2, end, last);
  if (parsed.ec != std::errc() || parsed.ptr != end || first < 0 || last < first || last > max) {
    return Status(Code::kConfig, option + " " + Shown(text) +
                                     ": expected a number or a range such as 1..30, at most " +
                                     std::to_string(max));
  }
  std::vector<int64_t> numbers;
  for (int64_t n = first; n <= last; ++n) numbers.push_back(n);
  return numbers;
}

CLI::Validator InRange(double low, double high) {
  return CLI::Validator(
      [low, high](const std::string& text) {
        double value = 0;
        const bool number = CLI::detail::lexical_cast(text, value);
        if (number && value >= low && value <= high) return std::string();
        return fmt::format("Value {} not in range [{} - {}]", Shown(text), low, high);
      },
      fmt::format("FLOAT in [{} - {}]", low, high), "InRange");
}

std::string VersionText() {
  const BuildInfo& build = ThisBuild();
  return "samara " + build.version + " (" + build.git_revision + ", " + build.compiler + ")";
}

namespace {

std::vector<std::string> OptionNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// The first word that looks like an option and is none of the command's; empty when all are.
std::string UnknownOption(const CLI::App& command, int argc, char** argv) {
  const std::vector<std::string> names = OptionNames(command);
  // what follows a program's name belongs to the program
  const bool others = command.get_prefix_command();
  for (int i = 2; i < argc && !others; ++i) {
    const std::string word = argv[i], name = word.substr(0, word.find('='));
    const bool option = name.starts_with("--") && name.size() > 2;
    if (option && std::find(names.begin(), names.end(), name) == names.end()) return name;
  }
  return {};
}

// Returns the value given after `option` or behind its '='; "..." when there is none.
std::string ValueAfter(const std::string& option, int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.starts_with(option + "=")) return std::string(word.substr(option.size() + 1));
    if (word == option && i + 1 < argc && argv[i + 1][0] != '-') return argv[i + 1];
  }
  return "...";
}

// Also by what other programs call it.
std::string NearestCommand(const std::string& word, std::vector<std::string> names) {
  static const std::map<std::string, std::string> kAliases = {
      {"run", "train"},   {"resume", "train"}, {"learn", "train"},  {"start", "train"},
      {"test", "eval"},   {"score", "eval"},   {"watch", "play"},   {"show", "play"},
      {"render", "play"}, {"verify", "fsck"},  {"presets", "list"}, {"envs", "list"},
      {"keys", "list"},   {"games", "list"},   {"plot", "report"}};
  for (const auto& [alias, name] : kAliases) names.push_back(alias);
  const std::string nearest = Nearest(word, names);
  const auto alias = kAliases.find(nearest);
  return alias == kAliases.end() ? nearest : alias->second;
}

}  // namespace

void TranslateWords(std::vector<std::string>& arguments) {
  if (arguments.size() == 2 && arguments[1] == "version") arguments[1] = "--version";
  if (arguments.size() < 2 || arguments[1] != "help") return;
  arguments.erase(arguments.begin() + 1);
  arguments.resize(std::min<size_t>(arguments.size(), 2));  // of one command
  arguments.emplace_back("--help");
}

std::string UsageMessage(const CLI::App& app, const std::string& what, int argc, char** argv) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  const std::string given = argc > 1 ? argv[1] : "";
  if (std::find(names.begin(), names.end(), given) != names.end()) {
    const std::string help = " ('samara " + given + " --help' shows its options)";
    const std::string option = UnknownOption(*app.get_subcommand(given), argc, argv);
    if (option.empty()) return what + help;
    if (const std::string key = option.substr(2); key.find('.') != std::string::npos)
      return Shown(option) + ": unknown option; a configuration key has no dashes: " + Shown(key) +
             "=" + Shown(ValueAfter(option, argc, argv)) + " ('samara list keys' shows all)";
    return Shown(option) + ": unknown option; the nearest known one is " +
           Nearest(option, OptionNames(*app.get_subcommand(given))) + help;
  }
  const std::string list = " ('samara --help' lists the commands)";
  if (given.starts_with('-') && given != "--help" && given != "-h" && given != "--version")
    return Shown(given) + ": unknown option; expected a command before it" + list;
  if (given.empty() || given[0] == '-') return what + list;
  return Shown(given) + ": unknown command; the nearest known one is " +
         NearestCommand(given, names) + list;
}

}  // namespace samara
