// samara eval: fresh episodes of a policy, and a video of one.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "core/format.h"
#include "core/signals.h"
#include "core/statistics.h"
#include "env/atari_preset.h"
#include "play/evaluate.h"
#include "play/playback.h"

namespace samara {
namespace {

struct EvalArguments {
  std::string target, noops, video;
  int64_t episodes = 200;
  uint64_t seed = 0;
  bool random = false, json = false;
  LoadOptions load;
};

// The policy that was played, as --json names it and as people read it.
std::string PolicyName(const Policy& policy, const EvalArguments& args) {
  if (args.random) return "random";
  const bool newest = policy.config.Learns() && args.load.individual == "elite";
  return newest ? "agent" : args.load.individual;
}

std::string Title(const Policy& policy, const EvalArguments& args) {
  return args.random ? "random policy, in the environment of " + policy.source : policy.source;
}

void PrintHuman(const std::string& title, std::span<const double> returns) {
  const Interval interval = BootstrapInterval(returns, Mean);
  const std::string text = fmt::format(
      "{}\n{} episodes: mean {} (95 % interval {} to {}), median {}, standard deviation {}\n",
      title, returns.size(), ScoreText(Mean(returns)), ScoreText(interval.low),
      ScoreText(interval.high), ScoreText(Median(returns)), ScoreText(Std(returns)));
  std::fputs(text.c_str(), stdout);
}

// --noops replaces the no-op count that an Atari preset draws, so there must be one.
Status CheckNoops(const EnvironmentConfig& env) {
  std::string what = env.id;
  if (what.empty()) {
    ASSIGN_OR_RETURN(const AtariPreset preset, FindAtariPreset(env.preset));
    if (preset.noops_max > 0) return Status::Ok();
    what = "env.preset=" + env.preset;
  }
  return {Code::kUsage,
          "eval --noops: episodes of " + what + " begin without no-ops; leave it out"};
}

Status RunEval(const Invocation& invocation, const EvalArguments& args) {
  InstallSignalHandlers();
  RETURN_IF_ERROR(CheckVideo(args.video));
  ASSIGN_OR_RETURN(const Policy policy, LoadPolicy(args.target, args.load));
  if (policy.config.Learns()) RETURN_IF_ERROR(NeedAgents(invocation, policy.config.run.algorithm));
  EvaluationOptions options{
      .episodes = args.episodes, .noops = {}, .seed = args.seed, .random = args.random};
  if (!args.noops.empty()) {
    ASSIGN_OR_RETURN(const auto counts, ParseRange("--noops", args.noops, 10'000));
    RETURN_IF_ERROR(CheckNoops(policy.config.env));
    options.noops.assign(counts.begin(), counts.end());
  }
  nlohmann::json video;
  if (!args.video.empty()) {
    if (args.random || !args.noops.empty())
      return {Code::kUsage,
              "eval --video shows the first of the policy's drawn episodes: expected neither "
              "--random nor --noops with it"};
    const uint64_t first = DeriveKey(args.seed, Purpose::kEpisodeEval);
    ASSIGN_OR_RETURN(const EpisodeResult watched, RecordVideo(policy, first, Path(args.video)));
    video = {{"file", args.video}, {"return", watched.fitness}, {"frames", watched.frames}};
    if (!args.json)
      std::printf("video of one episode (return %s): %s\n", ScoreText(watched.fitness).c_str(),
                  args.video.c_str());
  }
  ASSIGN_OR_RETURN(const auto results, EvaluatePolicy(policy, options, StopRequested));
  std::vector<double> returns;
  std::vector<uint64_t> frames;
  for (const auto& r : results) returns.push_back(r.fitness), frames.push_back(r.frames);
  if (!args.json) {
    PrintHuman(Title(policy, args), returns);
    return Status::Ok();
  }
  nlohmann::json object = {{"policy", PolicyName(policy, args)},
                           {"source", policy.source},
                           {"seed", args.seed},
                           {"episodes", returns.size()},
                           {"mean", Mean(returns)},
                           {"median", Median(returns)},
                           {"std", Std(returns)},
                           {"returns", returns},
                           {"frames", frames}};
  if (!video.is_null()) object["video"] = video;
  PrintJson(object);
  return Status::Ok();
}

}  // namespace

void AddEval(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("eval", "play fresh episodes of a run or a policy file");
  auto args = std::make_shared<EvalArguments>();
  command->add_option("target", args->target, "run folder or policy file")->required();
  command->add_option("overrides", args->load.overrides, "table.key=value, such as fleet.actors=1");
  AddLoading(*command, args->load);
  CLI::Option* const episodes =
      command->add_option("--episodes", args->episodes, "number of fresh episodes")
          ->capture_default_str()
          ->check(CLI::Range(1, 1'000'000));
  command
      ->add_option("--noops", args->noops,
                   "Atari: one episode for each of these no-op counts: 7 or 1..30")
      ->excludes(episodes);
  command->add_option("--seed", args->seed, "seed of the fresh episodes")
      ->check(CLI::Range(int64_t{0}, kSeedMax))
      ->capture_default_str();
  command->add_option("--video", args->video, "also record the first episode as FILE.mp4");
  AddIndividual(*command, args->load);
  command->add_flag("--random", args->random,
                    "play the random policy on the same episodes, for comparison");
  command->add_flag("--json", args->json, "last line: one JSON object");
  command->callback([=, &invocation] {
    invocation.run = [=, &invocation] { return RunEval(invocation, *args); };
  });
}

}  // namespace samara
