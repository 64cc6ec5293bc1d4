// Declarations that all subcommands share. A command registers its options with CLI11 and leaves a
// callable in Invocation::run, which main calls after parsing.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "play/saved_policy.h"
#include "samara/command.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
class Validator;
}  // namespace CLI

namespace samara {

struct Invocation {
  std::function<Status()> run;
  char** arguments = nullptr;  // of the process
  mode_t umask = 077;          // before ours
  int exit_code = 0;           // where `run` returned ok and printed its object all the same
  nlohmann::json found = nlohmann::json::object();  // printed with the error of `run` (--json)
};

// To be called before anything that needs agents (rl/learner/agent.h) of `algorithm`, or of any
// where it is empty: where this program has none, the one next to it that does takes over from the
// start, with the same arguments, and this does not return. kConfig when it is not there.
Status NeedAgents(const Invocation& invocation, std::string_view algorithm = {});
// Where that program stands, or should; empty when this program has agents of every algorithm.
std::string ProgramWithAgents();
// kConfig where pip installed this program and torch is not next to it, or not of the release for
// which samara-torch was built.
Status CheckInstalledTorch();

void AddTrain(CLI::App& app, Invocation& invocation);
void AddEval(CLI::App& app, Invocation& invocation);
void AddPlay(CLI::App& app, Invocation& invocation);
void AddReport(CLI::App& app, Invocation& invocation);
void AddList(CLI::App& app, Invocation& invocation);
void AddNew(CLI::App& app, Invocation& invocation);
void AddCheck(CLI::App& app, Invocation& invocation);
void AddDoctor(CLI::App& app, Invocation& invocation);
void AddFsck(CLI::App& app, Invocation& invocation);
void AddHash(CLI::App& app, Invocation& invocation);
void AddInspect(CLI::App& app, Invocation& invocation);
void AddExport(CLI::App& app, Invocation& invocation);
void AddImport(CLI::App& app, Invocation& invocation);
void AddLaunch(CLI::App& app, Invocation& invocation);
void AddAct(CLI::App& app, Invocation& invocation);
void AddActor(CLI::App& app, Invocation& invocation);
void AddToken(CLI::App& app, Invocation& invocation);
void AddCertificates(CLI::App& app, Invocation& invocation);
void AddBench(CLI::App& app, Invocation& invocation);
void AddCompletion(CLI::App& app, Invocation& invocation);
void AddAllCommands(CLI::App& app, Invocation& invocation);

inline constexpr int64_t kSeedMax = 9'000'000'000'000'000'000;  // as of run.seed

// --trust and --allow-nonfinite of a command that plays a policy; the latter alone.
void AddLoading(CLI::App& command, LoadOptions& options);
void AddAllowNonfinite(CLI::App& command, LoadOptions& options);
// --individual and --generation of a command that takes a policy of a run.
void AddIndividual(CLI::App& command, LoadOptions& options);
// The words env.kwargs.NAME=VALUE and env.wrappers=... of a command that takes an environment by
// name, and what they say.
void AddGymOptions(CLI::App& command, std::vector<std::string>& overrides);
Result<GymOptions> ParseGymOptions(const std::vector<std::string>& overrides);
// One line on standard output; the last line of a command called with --json.
void PrintJson(const nlohmann::json& object);
// "3", "1..30" or a list of such ("0,1,4..7"), each number from 0 to `max` and there once; kConfig
// naming the option.
Result<std::vector<int64_t>> ParseRange(const std::string& option, const std::string& text,
                                        int64_t max);
// Checks that what --video names can be made: a file FILE.mp4, or none (empty).
Status CheckVideo(const std::string& file);
// Checks that `file` is written under a name of its format; `given`: what the message begins with.
Status CheckEnding(const std::string& given, const std::string& file, std::string_view ending);
// A number of an option, which CLI::Range lets be nan.
CLI::Validator InRange(double low, double high);
// Games of env.game, as the ROMs of the environment's ale-py have them, sorted. kNoInput without
// it.
Result<std::vector<std::string>> AtariGames();
// Lines that end the help of a command; empty where there are none.
std::string ExamplesOf(std::string_view command);
// `text` in lines of at most `width` bytes, broken between words.
std::vector<std::string> Wrapped(std::string_view text, size_t width);
std::string VersionText();
// "samara help [COMMAND]" and "samara version" as the options they stand for; other arguments as
// they are. Changes `arguments`, which backs the pointers.
void TranslateWords(std::vector<std::string>& arguments);
// CLI11's message, with the nearest command when an unknown one was given, or the option.
std::string UsageMessage(const CLI::App& app, const std::string& what, int argc, char** argv);

}  // namespace samara
