// samara play: watch a policy in the terminal, or as an mp4.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "core/clock.h"
#include "core/format.h"
#include "core/rng.h"
#include "core/signals.h"
#include "play/playback.h"
#include "view/keys.h"
#include "view/terminal.h"
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
constexpr double kSpeedMin = 0.01, kSpeedMax = 1000;
constexpr double kLookSeconds = 0.2;  // at the keys while paused

// Draws an episode in the terminal as the keys say.
class TerminalPlayer {
 public:
  explicit TerminalPlayer(double speed) : speed_(speed) {}

  Status Start(const PictureFormat& format);
  // false: the viewer has seen enough.
  bool Show(std::span<const uint8_t> rgb, const EpisodeResult& so_far);

 private:
  void Take(char key);
  void Draw(std::span<const uint8_t> rgb, const EpisodeResult& so_far);
  std::string Caption(const EpisodeResult& so_far) const;
  // Pictures of which one is drawn: a terminal has no time for more.
  int64_t Skipped() const {
    const double wanted = format_.per_second * speed_ / kTerminalPicturesPerSecond;
    return std::max<int64_t>(1, static_cast<int64_t>(wanted));
  }

  double speed_;
  bool paused_ = false, quit_ = false;
  std::optional<uint32_t> step_;  // paused, this one is played on to
  PictureFormat format_;
  int64_t shown_ = 0;
  SteadyTime next_;
  // as long as the terminal must be put in order again
  std::optional<GracefulStop> looked_at_;
  std::optional<Keys> keys_;
  std::unique_ptr<TerminalView> view_;
};

Status TerminalPlayer::Start(const PictureFormat& format) {
  format_ = format;
  looked_at_.emplace();
  keys_.emplace();
  view_ = std::make_unique<TerminalView>(stdout);
  next_ = Now();
  return Status::Ok();
}

bool TerminalPlayer::Show(std::span<const uint8_t> rgb, const EpisodeResult& so_far) {
  const bool still = paused_ && (!step_ || so_far.steps >= *step_);
  if (still) step_.reset();
  if (still || shown_++ % Skipped() == 0) Draw(rgb, so_far);
  next_ += std::chrono::microseconds(static_cast<int64_t>(1e6 / (format_.per_second * speed_)));
  for (;;) {
    if (StopRequested() || quit_) return false;
    const bool waits = paused_ && !step_;
    const double left = waits ? kLookSeconds : std::chrono::duration<double>(next_ - Now()).count();
    if (const auto key = keys_->Next(left)) {
      Take(*key);
      Draw(rgb, so_far);
    } else if (!waits && Now() >= next_) {
      return true;
    }
    if (waits) next_ = Now();  // no time passes
    if (step_ && *step_ == 0) step_ = so_far.steps + 1;
    if (paused_ && step_) return true;
  }
}

void TerminalPlayer::Take(char key) {
  if (key == 'q') quit_ = true;
  if (key == ' ') paused_ = !paused_;
  if (key == '+' || key == '=') speed_ = std::min(speed_ * 2, kSpeedMax);
  if (key == '-') speed_ = std::max(speed_ / 2, kSpeedMin);
  if (key == '.') paused_ = true, step_ = 0;
}

void TerminalPlayer::Draw(std::span<const uint8_t> rgb, const EpisodeResult& so_far) {
  view_->Show(rgb, {format_.width, format_.height, format_.pixel_aspect}, Caption(so_far));
}

std::string TerminalPlayer::Caption(const EpisodeResult& so_far) const {
  const std::string state =
      fmt::format("score {}  step {}  speed {:g}{}", ScoreText(so_far.fitness), so_far.steps,
                  speed_, paused_ ? ", paused" : "");
  const int room = SizeOfTerminal(stdout).columns - static_cast<int>(state.size());
  for (const std::string_view keys :
       {"  (q quit, space pause, + - speed, . step)", "  (q, space, + - .)"})
    if (room >= static_cast<int>(keys.size())) return state + std::string(keys);
  return state;
}

Result<EpisodeResult> WatchInTerminal(const Policy& policy, const PlayArguments& args) {
  if (!TerminalView::Usable(stdout)) {
    return Status(
        Code::kConfig,
        "standard output is no terminal that draws pictures: expected one, or --video FILE.mp4");
  }
  TerminalPlayer player(args.speed);
  PictureSink sink;
  sink.start = [&](const PictureFormat& format) { return player.Start(format); };
  sink.picture = [&](std::span<const uint8_t> rgb, const EpisodeResult& so_far) {
    return player.Show(rgb, so_far);
  };
  return Watch(policy, DeriveKey(args.seed, Purpose::kEpisodeEval), sink);
}

// "return 59 in 59 frames"; of an episode that was cut short with what it had by then.
std::string Outcome(const EpisodeResult& result, bool video) {
  const std::string text =
      fmt::format("return {} in {} frames", ScoreText(result.fitness), result.frames);
  if (result.done) return text;
  return (video ? "" : "interrupted: ") + text + " so far";
}

Status RunPlay(const Invocation& invocation, const PlayArguments& args) {
  InstallSignalHandlers();
  RETURN_IF_ERROR(CheckVideo(args.video));
  ASSIGN_OR_RETURN(const Policy policy, LoadPolicy(args.target, args.load));
  if (policy.config.Learns()) RETURN_IF_ERROR(NeedAgents(invocation, policy.config.run.algorithm));
  auto result =
      args.video.empty()
          ? WatchInTerminal(policy, args)
          : RecordVideo(policy, DeriveKey(args.seed, Purpose::kEpisodeEval), Path(args.video));
  if (!result.ok()) return result.status();
  if (args.json) {
    nlohmann::json object = {{"return", result->fitness},
                             {"frames", result->frames},
                             {"steps", result->steps},
                             {"video", args.video}};
    if (!result->done) object["interrupted"] = true;
    PrintJson(object);
  } else {
    const std::string outcome = Outcome(*result, !args.video.empty());
    std::printf("%s: %s%s%s\n", policy.source.c_str(), outcome.c_str(),
                args.video.empty() ? "" : ", ", args.video.c_str());
  }
  return Status::Ok();
}

}  // namespace

void AddPlay(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("play", "watch one episode of a run or a policy file");
  auto args = std::make_shared<PlayArguments>();
  command->add_option("target", args->target, "run folder or policy file")->required();
  AddLoading(*command, args->load);
  AddIndividual(*command, args->load);
  command->add_option("--video", args->video, "write FILE.mp4 instead of drawing in the terminal");
  command->add_option("--seed", args->seed, "seed of the episode")
      ->check(CLI::Range(int64_t{0}, kSeedMax))
      ->capture_default_str();
  command->add_option("--speed", args->speed, "speed, as a multiple of real time")
      ->capture_default_str()
      ->check(InRange(kSpeedMin, kSpeedMax));
  command->add_flag("--json", args->json, "last line: one JSON object");
  command->callback([=, &invocation] {
    invocation.run = [=, &invocation] { return RunPlay(invocation, *args); };
  });
}

}  // namespace samara
