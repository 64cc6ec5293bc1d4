#include "cli/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
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
#include "core/suggestion.h"
#include "core/venv.h"
#include "rl/algorithms/registry.h"
#include "storage/build_info.h"
#include "storage/run_folder.h"

namespace samara {

namespace {
constexpr size_t kHelpWidth = 70;     // of an option's description: a line of 100 columns
constexpr size_t kCommandWidth = 50;  // of a command's, in the list of all: a line of 80 columns

class HelpFormatter : public CLI::Formatter {
  // The type of a number is in its range: "INT in [1 - 9]", without the "UINT:" before it.
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string text = CLI::Formatter::make_option_opts(option);
    const size_t range = std::min(text.find(":INT in ["), text.find(":FLOAT in ["));
    if (range == text.npos) return text;
    const size_t type = text.rfind(' ', range);
    return text.erase(type + 1, range - type);
  }
  // An option's usage is the text that it has in place of its type, where it has one.
  std::string make_option_usage(const CLI::Option* option) const override {
    const std::string& text = option->get_option_text();
    return text.empty() ? CLI::Formatter::make_option_usage(option) : text;
  }
  // A hidden group leaves its empty line.
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    for (size_t at; (at = text.find("\n\n\n")) != text.npos;) text.erase(at, 1);
    return text;
  }
};

std::string Lines(const std::string& text, size_t width) {
  return fmt::format("{}", fmt::join(Wrapped(text, width), "\n"));
}

}  // namespace

// in the order a newcomer meets them
void AddAllCommands(CLI::App& app, Invocation& invocation) {
  app.formatter(std::make_shared<HelpFormatter>());  // which the commands take from it
  for (const auto add :
       {AddTrain,  AddEval,  AddPlay,  AddReport,       AddList,   AddCheck,     AddNew,
        AddDoctor, AddFsck,  AddHash,  AddInspect,      AddExport, AddImport,    AddLaunch,
        AddAct,    AddActor, AddToken, AddCertificates, AddBench,  AddCompletion}) {
    add(app, invocation);
  }
  // an empty word is a script's unset variable, never meant
  const auto something = [](const std::string& text) {
    return text.empty() ? "expected a value, not an empty text" : std::string();
  };
  for (CLI::App* command : app.get_subcommands({})) {
    command->description(Lines(command->get_description(), kCommandWidth));
    const std::string before = command->get_footer();
    command->footer(before + (before.empty() ? "" : "\n\n") + ExamplesOf(command->get_name()));
    for (CLI::Option* option : command->get_options()) {
      option->description(Lines(option->get_description(), kHelpWidth));
      if (option->get_expected_max() > 0) option->check(something);
    }
  }
}

std::vector<std::string> Wrapped(std::string_view text, size_t width) {
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    size_t end = std::min(text.find(' '), text.size());
    // a list of choices is one word
    const size_t choice = end > width ? text.rfind('|', width - 1) : text.npos;
    if (choice != text.npos) end = choice + 1;
    if (!lines.back().empty() && lines.back().size() + 1 + end > width) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + std::string(text.substr(0, end));
    text.remove_prefix(std::min(choice != text.npos ? end : end + 1, text.size()));
  }
  return lines;
}

std::string ProgramWithAgents() {
  if (HasAgents()) return {};
  std::error_code error;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", error);
  // a program outside this tree has algorithms and environments that samara-torch lacks
  if (here.filename() != "samara") return {};
  return (here.parent_path() / "samara-torch").string();
}

Status CheckInstalledTorch() {
  const Path site = SitePackagesOfProgram();
  const std::string& needed = ThisBuild().torch;
  if (site.empty() || needed.empty()) return Status::Ok();
  const std::string found = TorchIn(site);
  if (found == needed || found.starts_with(needed + "+")) return Status::Ok();
  return {
      Code::kConfig,
      fmt::format("this learning algorithm and runs on several ranks need torch "
                  "{0}, {1} in {2}: pip install torch=={0}",
                  needed, found.empty() ? "which is not" : "not " + found + " as", site.string())};
}

Status NeedAgents(const Invocation& invocation, std::string_view algorithm) {
  if (HasAgents(algorithm)) return Status::Ok();
  const std::string there = ProgramWithAgents();
  if (there.empty())
    return {
        Code::kConfig,
        "this program is linked without torch, which this learning algorithm and runs on several "
        "ranks need; link samara::learning"};
  RETURN_IF_ERROR(CheckInstalledTorch());
  std::fflush(nullptr);
  HoldStopSignals();  // until that one has its handlers, which takes it a third of a second
  execv(there.c_str(), invocation.arguments);
  const int error = errno;
  HoldStopSignals(false);
  return {Code::kConfig, there + ": " + std::strerror(error) +
                             ": this learning algorithm and runs on several ranks need it; `make "
                             "build` makes it (SAMARA_TORCH=ON)"};
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
                  "generation of an evolution's policy; default: the last")
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

namespace {

// Appends "3" or "1..30"; false for anything else.
bool AddRange(std::string_view text, int64_t max, std::vector<int64_t>& numbers) {
  int64_t first = 0, last = 0;
  const char* end = text.data() + text.size();
  auto parsed = std::from_chars(text.data(), end, first);
  last = first;
  const bool range =
      parsed.ec == std::errc() && std::string_view(parsed.ptr, end).starts_with("..");
  if (range) parsed = std::from_chars(parsed.ptr + 2, end, last);
  if (parsed.ec != std::errc() || parsed.ptr != end || first < 0 || last < first || last > max)
    return false;
  for (int64_t n = first; n <= last; ++n) numbers.push_back(n);
  return true;
}

}  // namespace

Result<std::vector<int64_t>> ParseRange(const std::string& option, const std::string& text,
                                        int64_t max) {
  std::vector<int64_t> numbers;
  bool good = true;
  for (size_t at = 0; good && at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    good = AddRange(std::string_view(text).substr(at, end - at), max, numbers);
    at = end + 1;
  }
  const std::string given = option + " " + Shown(text);
  if (!good)
    return Status(Code::kUsage, given +
                                    ": expected a number or a range such as 1..30, or a list such "
                                    "as 0,1,2, at most " +
                                    std::to_string(max));
  std::vector<int64_t> sorted = numbers;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    return Status(Code::kUsage, given + ": " + std::to_string(*twice) + " is there twice");
  return numbers;
}

Status CheckVideo(const std::string& file) {
  if (file.empty()) return Status::Ok();
  RETURN_IF_ERROR(CheckOutputFile(file, "videos"));
  return CheckEnding("--video " + Shown(file), file, ".mp4");
}

Status CheckEnding(const std::string& given, const std::string& file, std::string_view ending) {
  // what is neither a file nor missing is refused by the one that writes it
  std::error_code failed;
  const auto type = std::filesystem::status(file, failed).type();
  const bool other =
      type != std::filesystem::file_type::regular && type != std::filesystem::file_type::not_found;
  if (other || file.ends_with(ending)) return Status::Ok();
  return {Code::kUsage, given + ": expected a name that ends in " + std::string(ending)};
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
  // an archive of the source, without .git, has none
  const std::string revision = build.git_revision == "unknown" ? "" : build.git_revision + ", ";
  return "samara " + build.version + " (" + revision + build.compiler + ")";
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

// Also by what other programs call it; empty when none is near.
std::string NearestCommand(const std::string& word, std::vector<std::string> names) {
  static const std::map<std::string, std::string> kAliases = {
      {"run", "train"},   {"resume", "train"}, {"learn", "train"},  {"start", "train"},
      {"test", "eval"},   {"score", "eval"},   {"watch", "play"},   {"show", "play"},
      {"render", "play"}, {"verify", "fsck"},  {"presets", "list"}, {"envs", "list"},
      {"keys", "list"},   {"games", "list"},   {"plot", "report"}};
  for (const auto& [alias, name] : kAliases) names.push_back(alias);
  const std::string nearest = Suggestion(word, names);
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
    // what is an option of other programs
    static const std::map<std::string, std::string> kKeys = {{"--seed", "run.seed"},
                                                             {"--device", "run.device"},
                                                             {"--env", "env.id"},
                                                             {"--game", "env.game"}};
    const auto known = given == "train" ? kKeys.find(option) : kKeys.end();
    if (const std::string key = known == kKeys.end() ? option.substr(2) : known->second;
        key.find('.') != std::string::npos)
      return Shown(option) + ": unknown option; a configuration key has no dashes: " + Shown(key) +
             "=" + Shown(ValueAfter(option, argc, argv)) + " ('samara list keys' shows all)";
    return Shown(option) + ": unknown option; the nearest known one is " +
           Nearest(option, OptionNames(*app.get_subcommand(given))) + help;
  }
  const std::string list = " ('samara --help' lists the commands)";
  if (given.starts_with('-') && given != "--help" && given != "-h" && given != "--version")
    return Shown(given) + ": unknown option; expected a command before it" + list;
  if (given.empty() || given[0] == '-') return what + list;
  const std::string nearest = NearestCommand(given, names);
  return Shown(given) + ": unknown command" +
         (nearest.empty() ? "" : "; the nearest known one is " + nearest) + list;
}

}  // namespace samara
