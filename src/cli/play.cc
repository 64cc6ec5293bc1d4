// samara play: watch a policy in the terminal, or as an mp4.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "cli/command.h"
#include "core/rng.h"
#include "core/signals.h"
#include "play/playback.h"
#include "storage/run_folder.h"
#include "view/terminal_view.h"

namespace samara {
namespace {

struct PlayArguments {
  std::string target, video;
  uint64_t seed = 0;
  double speed = 1;
  bool json = false;
  LoadOptions load;
};

constexpr double kTerminalPicturesPerSecond = 15;  // what a terminal draws without tearing

Result<EpisodeResult> WatchInTerminal(const Policy& policy, const PlayArguments& args) {
  PictureFormat format;
  std::optional<GracefulStop> looked_at;  // as long as the terminal must be put in order again
  std::unique_ptr<TerminalView> view;
  int64_t shown = 0, skip = 1;
  auto next = std::chrono::steady_clock::now();
  if (!TerminalView::Usable(stdout)) {
    return Status(
        Code::kConfig,
        "standard output is no terminal that draws pictures: expected one, or --video FILE.mp4");
  }
  PictureSink sink;
  sink.start = [&](const PictureFormat& f) {
    format = f;
    skip = std::max<int64_t>(1, static_cast<int64_t>(f.per_second / kTerminalPicturesPerSecond));
    looked_at.emplace();
    view = std::make_unique<TerminalView>(stdout);
    return Status::Ok();
  };
  sink.picture = [&](std::span<const uint8_t> rgb) {
    if (StopRequested()) return false;
    if (shown++ % skip != 0) return true;
    view->Show(rgb, {format.width, format.height, format.pixel_aspect}, "Ctrl-C ends");
    next += std::chrono::microseconds(
        static_cast<int64_t>(1e6 * static_cast<double>(skip) / (format.per_second * args.speed)));
    std::this_thread::sleep_until(next);
    return true;
  };
  return Watch(policy, DeriveKey(args.seed, Purpose::kEpisodeEval), sink);
}

Status RunPlay(const Invocation& invocation, const PlayArguments& args) {
  InstallSignalHandlers();
  if (!args.video.empty()) RETURN_IF_ERROR(CheckOutputFile(args.video, "videos"));
  ASSIGN_OR_RETURN(const Policy policy, LoadPolicy(args.target, args.load));
  if (policy.config.Learns()) RETURN_IF_ERROR(NeedAgents(invocation));
  auto result =
      args.video.empty()
          ? WatchInTerminal(policy, args)
          : RecordVideo(policy, DeriveKey(args.seed, Purpose::kEpisodeEval), Path(args.video));
  if (!result.ok()) return result.status();
  if (args.json) {
    PrintJson({{"return", result->fitness},
               {"frames", result->frames},
               {"steps", result->steps},
               {"video", args.video}});
  } else {
    std::printf("%s: return %g in %llu frames%s%s\n", policy.source.c_str(), result->fitness,
                static_cast<unsigned long long>(result->frames), args.video.empty() ? "" : ", ",
                args.video.c_str());
  }
  return Status::Ok();
}

}  // namespace

void AddPlay(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      app.add_subcommand("play", "watch one episode of a run's elite or of a policy file");
  auto args = std::make_shared<PlayArguments>();
  command->add_option("target", args->target, "run folder or policy file")->required();
  AddLoading(*command, args->load);
  AddIndividual(*command, args->load);
  command->add_option("--video", args->video, "write FILE.mp4 instead of drawing in the terminal");
  command->add_option("--seed", args->seed, "which episode")
      ->check(CLI::Range(int64_t{0}, kSeedMax))
      ->capture_default_str();
  command->add_option("--speed", args->speed, "1 = real time")
      ->capture_default_str()
      ->check(InRange(0.01, 1000.0));
  command->add_flag("--json", args->json, "last line: one JSON object");
  command->callback([=, &invocation] {
    invocation.run = [=, &invocation] { return RunPlay(invocation, *args); };
  });
}

}  // namespace samara
