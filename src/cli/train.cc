// samara train: one run from a preset or file, or a resumed one.
#include "train/train.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "cli/given.h"
#include "cli/train_many.h"
#include "config/presets.h"
#include "core/clock.h"
#include "core/files.h"
#include "core/log.h"
#include "core/resources.h"
#include "core/signals.h"
#include "core/thread.h"
#include "fleet/named_environment.h"
#include "play/environment_setup.h"
#include "play/saved_policy.h"
#include "replica/group/group.h"
#include "storage/run_folder.h"

namespace samara {
namespace {

// Splits "PRESET a.b=c ..." into the preset and the overrides.
Status Split(const TrainArguments& args, std::string& preset, std::vector<std::string>& overrides) {
  for (const std::string& word : args.words) {
    if (word.find('=') != std::string::npos)
      overrides.push_back(word);
    else if (preset.empty())
      preset = word;
    else
      return {Code::kUsage, word + ": expected one preset and then table.key=value"};
  }
  return Status::Ok();
}

// The name of a run of another task than the preset's ends with that task: "cartpole-ga-MyTask" for
// env.id=my_tasks:MyTask. run.name=NAME stays.
void NameAfterTask(const std::vector<std::string>& overrides, std::string& name) {
  std::string task;
  for (const std::string& word : overrides) {
    const std::string_view key = std::string_view(word).substr(0, word.find('='));
    if (key == "run.name") return;
    if (key == "env.id" || key == "env.game") task = word.substr(key.size() + 1);
  }
  task = task.substr(0, task.find('?'));
  task = task.substr(task.find_last_of(":/") + 1);
  if (!task.empty()) name += "-" + task;
}

// Checks every setting, and whether the folders of all runs can be made. Returns the first
// setting's configuration.
Result<EffectiveConfig> CheckPlan(const TrainPlan& plan, TrainOptions options) {
  std::optional<EffectiveConfig> first;
  options.out.reset(), options.resume_auto = false;
  for (const PlannedRun& run : plan.runs)  // some may be there already
    if (!Exists(RootedPath::Root(run.folder) / "config.toml"))
      RETURN_IF_ERROR(RunFolder::CheckRoom(run.folder));
  for (size_t i = 0; i < plan.settings.size(); ++i) {
    const TrainSetting& setting = plan.settings[i];
    ExperimentConfig config = setting.config;
    config.run.seed = plan.seeds[0];
    auto checked = CheckTrain(std::move(config), options);
    if (!checked.ok() && setting.words.empty()) return checked;
    if (!checked.ok())
      return checked.status().Annotate(fmt::format("--sweep {}", fmt::join(setting.words, " ")));
    if (!first) first = *std::move(checked);
  }
  return *std::move(first);
}

// Checks and shows the run; of several the first one.
Status DryRun(const TrainArguments& args, const std::optional<TrainPlan>& plan,
              const ExperimentConfig& config, const TrainOptions& options) {
  std::string header;
  nlohmann::json object;
  if (plan) header = ListMany(args, *plan, object);
  ASSIGN_OR_RETURN(const EffectiveConfig effective,
                   plan ? CheckPlan(*plan, options) : CheckTrain(config, options));
  std::printf("%s%s", header.c_str(), effective.toml.c_str());
  if (!args.json) return Status::Ok();
  object.update(effective.found);
  object["config_hash"] = effective.hash;
  PrintJson(object);
  return Status::Ok();
}

Status TrainOne(const TrainArguments& args, const ExperimentConfig& config,
                const TrainOptions& options) {
  ASSIGN_OR_RETURN(const nlohmann::json result, Train(config, options));
  if (args.json) PrintJson(result);
  return Status::Ok();
}

// Where and on what terms actors on other machines may connect.
Status TakeListening(const TrainArguments& args, RemoteFleetOptions& remote) {
  remote.address = args.listen;
  remote.certificate = args.certificate, remote.key = args.key, remote.client_ca = args.client_ca;
  remote.token_files.assign(args.token_files.begin(), args.token_files.end());
  remote.token_only = args.token_only, remote.insecure_i_know = args.insecure;
  const bool terms = !args.token_files.empty() || !args.certificate.empty() || !args.key.empty() ||
                     !args.client_ca.empty() || args.token_only || args.insecure;
  if (args.listen.empty() && terms)
    return {Code::kUsage,
            "--token-file, --certificate, --key, --client-ca, --token-only and --insecure-i-know "
            "go with --listen ADDR"};
  return Status::Ok();
}

// The ranks that a launcher has started. A rank may wait for another's longest episode: who is
// frozen or gone is noticed by its heartbeats, long before this deadline.
Result<std::unique_ptr<RankGroup>> JoinRanks(const World& world) {
  const EnvironmentVariables variable = ProcessEnvironment();
  LinkOptions links;
  links.transport = variable("SAMARA_TRANSPORT").value_or("auto");
  links.address = variable("SAMARA_ADDRESS").value_or("");
  CommunicatorOptions options;
  options.deadline = links.deadline = std::chrono::hours(1);
  links.heartbeat_timeout = std::chrono::seconds(5);  // machines that train are busy
  options.first_deadline = links.start;
  ASSIGN_OR_RETURN(const RankLinks connected, Connect(world, links));
  ASSIGN_OR_RETURN(auto group, RankGroup::Make(world, connected, options));
  if (world.rank == 0) LogInfo(Describe(world) + ", " + group->communicator().transport().name());
  return group;
}

// Ends a rank that cannot end by itself: what it asked of the store is never answered where the
// process that has the store is frozen. For ranks that own nothing.
class StopWatchdog {
 public:
  explicit StopWatchdog(RankGroup& ranks)
      : thread_("last-resort", [this, &ranks] { Watch(ranks); }) {}
  ~StopWatchdog() { over_ = true; }

 private:
  void Watch(RankGroup& ranks) const {
    SteadyTime failed = Now();
    while (!over_) {
      if (!ranks.failed()) failed = Now();
      if (SecondsSince(failed) > kSeconds) {
        const Status why = ranks.communicator().failure();
        std::fprintf(stderr, "samara: %s\n", why.message().c_str());
        std::_Exit(static_cast<int>(why.code()));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  static constexpr double kSeconds = 3;
  std::atomic<bool> over_{false};
  Thread thread_;
};

// Returns what `work` returns; when it throws, the group fails first, so that the other ranks do
// not wait.
template <typename Work>
auto OrTellRanks(RankGroup* ranks, const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::exception& error) {
    if (ranks != nullptr) ranks->Fail(StatusOf(error));
    throw;
  }
}

// A rank other than 0: rank 0 reads the arguments and owns the run.
Status Follow(const World& world, const TrainArguments& args, Invocation& invocation) {
  if (args.dry_run) return Status::Ok();
  RETURN_IF_ERROR(NeedAgents(invocation));
  ASSIGN_OR_RETURN(const auto ranks, JoinRanks(world));
  const StopWatchdog watchdog(*ranks);
  InstallSignalHandlers();
  ASSIGN_OR_RETURN(const Code code, OrTellRanks(ranks.get(), [&] { return FollowRuns(*ranks); }));
  invocation.exit_code = static_cast<int>(code);  // rank 0 says why
  return Status::Ok();
}

// Reads a preset or file; where another algorithm was chosen, keys of its own are in the way.
Status ReadPreset(const std::string& toml, const std::string& preset, const std::string& algorithm,
                  ConfigTable& table) {
  const Status read = table.ParseToml(toml, preset);
  ExperimentConfig own;
  own.ChooseAlgorithm(toml);
  if (read.ok() || own.run.algorithm == algorithm) return read;
  return {read.code(),
          fmt::format("{}; expected a preset of {} ('samara list presets'), or a .toml file of "
                      "your own without the tables of {}",
                      read.message(), algorithm, own.run.algorithm)};
}

// The configuration of a preset or file with these overrides.
Result<ExperimentConfig> Configure(const TrainArguments& args, const std::string& preset,
                                   const std::vector<std::string>& overrides) {
  ASSIGN_OR_RETURN(const std::string toml, GivenPreset(preset));
  ExperimentConfig config;
  config.ChooseAlgorithm(toml, overrides);
  ConfigTable table = config.Table();
  // first, since it decides which keys there are
  RETURN_IF_ERROR(table.Set("run.algorithm", config.run.algorithm));
  RETURN_IF_ERROR(ReadPreset(toml, preset, config.run.algorithm, table));
  const bool code = ChoosesCode(config.env) || !config.learning.network.module.empty();
  if (preset.ends_with(".toml") && code && !args.trust && !ChoosesAllCode(config, overrides))
    RETURN_IF_ERROR(CheckOwn(preset));
  for (const auto& assignment : overrides) RETURN_IF_ERROR(table.Override(assignment));
  if (args.out.empty()) NameAfterTask(overrides, config.run.name);
  const bool continues = args.resume == "auto" && Exists(RootedPath::Root(args.out) / "run.json");
  if (!continues) RETURN_IF_ERROR(CheckGame(config.env, toml, overrides));
  return config;
}

// Checks that the command and this program can run the configuration.
Status CheckRun(const TrainArguments& args, const ExperimentConfig& config,
                const Invocation& invocation) {
  if (!args.listen.empty() && !config.Learns())
    return {Code::kUsage, "--listen: " + config.run.algorithm +
                              " plays on this machine; expected a learning run such as vtrace"};
  return config.Learns() ? NeedAgents(invocation, config.run.algorithm) : Status::Ok();
}

Status RunTrain(const TrainArguments& args, Invocation& invocation,
                const std::vector<std::string>& command) {
  ASSIGN_OR_RETURN(const World world, DiscoverWorld(ProcessEnvironment()));
  if (world.rank > 0) return Follow(world, args, invocation);
  std::string preset;
  TrainOptions options;
  options.command = command;
  options.quiet = args.quiet;
  options.trust = args.trust;
  options.progress_lines = args.progress;
  RETURN_IF_ERROR(Split(args, preset, options.overrides));
  ExperimentConfig config;
  const bool automatic = args.resume == "auto";
  if (!args.resume.empty() && !automatic) {
    if (!preset.empty() || !args.out.empty()) {
      return {
          Code::kUsage,
          "--resume DIR takes neither a preset nor --out: the run folder holds its configuration"};
    }
    options.resume = args.resume;
  } else {
    if (preset.empty())
      return {
          Code::kUsage,
          "expected a preset or a .toml file ('samara list presets' shows them), or --resume DIR"};
    if (automatic && args.out.empty()) return {Code::kUsage, "--resume auto needs --out DIR"};
    ASSIGN_OR_RETURN(config, Configure(args, preset, options.overrides));
    if (!args.out.empty()) options.out = args.out;
    options.resume_auto = automatic;
  }
  if (args.dry_run && options.resume) return {Code::kUsage, "--dry-run goes with a preset"};
  if (args.parallel > 0 && !args.many())
    return {Code::kUsage, "--parallel goes with --seeds or --sweep"};
  RETURN_IF_ERROR(TakeListening(args, options.remote));
  TakeAlgorithm(config, options);
  std::optional<TrainPlan> plan;
  if (args.many()) {
    const Path out = args.out.empty() ? DefaultRunFolder(config.run.name) : Path(args.out);
    ASSIGN_OR_RETURN(plan, PlanMany(args, options, out, [&](const std::vector<std::string>& more) {
                       std::vector<std::string> words = options.overrides;
                       words.insert(words.end(), more.begin(), more.end());
                       return Configure(args, preset, words);
                     }));
  }
  if (world.size > 1) RETURN_IF_ERROR(NeedAgents(invocation));
  if (plan) {
    for (const TrainSetting& setting : plan->settings)
      RETURN_IF_ERROR(CheckRun(args, setting.config, invocation));
  } else {
    RETURN_IF_ERROR(CheckRun(args, config, invocation));
  }
  options.planned_ranks = world.size;
  if (args.dry_run) return DryRun(args, plan, config, options);
  std::unique_ptr<RankGroup> ranks;
  if (world.size > 1) {
    ASSIGN_OR_RETURN(ranks, JoinRanks(world));
    options.ranks = ranks.get();
    config.fleet.engines = world.local_size;
    for (size_t i = 0; plan && i < plan->settings.size(); ++i)
      plan->settings[i].config.fleet.engines = world.local_size;
  }
  InstallSignalHandlers();
  if (!args.token_files.empty() || !args.certificate.empty()) {
    ReloadOnHangUp();
    options.remote.reload = TakeReloadRequest;
  }
  const Status done = OrTellRanks(ranks.get(), [&] {
    return plan ? TrainMany(args, *plan, options, invocation.umask)
                : TrainOne(args, config, options);
  });
  if (ranks) EndRuns(*ranks, done.code());
  return done;
}

}  // namespace

void AddTrain(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      app.add_subcommand("train", "run a preset or a .toml file; --resume continues");
  auto args = std::make_shared<TrainArguments>();
  command
      ->add_option("preset", args->words,
                   "what to train, and keys to change ('samara list presets', 'samara list keys')")
      ->option_text("PRESET|FILE.toml [table.key=value ...]");
  command->add_option("--out", args->out, "run folder to create; default: runs/<name>-NN");
  command->add_option("--resume", args->resume,
                      "run folder to continue; 'auto': continue if --out holds this configuration");
  command->add_option(
      "--seeds", args->seeds,
      "run every seed of 0..4 or 0,1,2 in OUT/seed-N, as many at once as there are cores, and "
      "report them together; repeat the command to go on");
  command
      ->add_option("--sweep", args->sweep,
                   "run every value of a key, in OUT/KEY=VALUE/seed-N, and with --seeds every seed "
                   "of each; given again for another key: every combination. Values that have "
                   "commas are separated by ';'")
      ->option_text("KEY=VALUE,VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--parallel", args->parallel,
                   "with --seeds or --sweep: number of runs at once; default: one for each core")
      ->check(CLI::Range(1, 4096));
  command->add_option("--listen", args->listen,
                      "accept actors of other machines: unix:/folder/socket, 127.0.0.1:PORT, or "
                      "HOST:PORT with TLS, actors' certificates and a token "
                      "(doc/remote_actors.md)");
  command->add_option("--token-file", args->token_files,
                      "with --listen: file with the token of the actors; two files while one is "
                      "replaced; SIGHUP reloads them and the certificates");
  command->add_option("--certificate", args->certificate,
                      "with --listen: certificate (PEM), enables TLS");
  command->add_option("--key", args->key, "with --certificate: its private key");
  command->add_option(
      "--client-ca", args->client_ca,
      "with --certificate: authority that must have signed the certificates of actors; "
      "required where other machines reach the address");
  command->add_flag("--token-only", args->token_only,
                    "with --listen and --certificate: require a token of actors, no certificate");
  command->add_flag(
      "--insecure-i-know", args->insecure,
      "with --listen: accept any address without TLS or token, and actors of any user");
  command->add_flag("--trust", args->trust,
                    "also resume a run, or start a .toml file that chooses code, that another user "
                    "owns or may write to");
  command->add_flag("--dry-run", args->dry_run,
                    "check everything that the run checks (environment, network, --out), show its "
                    "warnings, print the effective configuration; writes nothing");
  command->add_flag("--quiet", args->quiet, "no live view");
  // of --seeds and --sweep, whose runs are processes that tell them what they do
  command->add_flag("--progress", args->progress)->group("");
  command->add_flag("--json", args->json, "last line: one JSON object");
  command->callback([=, &invocation] {
    std::vector<std::string> words = {"samara", "train"};
    words.insert(words.end(), args->words.begin(), args->words.end());
    invocation.run = [=, &invocation] { return RunTrain(*args, invocation, words); };
  });
}

}  // namespace samara
