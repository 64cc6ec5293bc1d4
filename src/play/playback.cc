#include "play/playback.h"

#include "core/format.h"
#include "core/rng.h"
#include "play/environment_setup.h"
#include "play/run_episodes.h"
#include "view/caption.h"
#include "view/video.h"

namespace samara {
namespace {

constexpr double kAtariPixelAspect = 1.75;  // 160x210 on a 4:3 screen

std::span<const uint8_t> Bytes(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

void Count(EpisodeResult& result, const StepResult& step) {
  result.fitness += step.reward;
  result.frames += step.frames;
  ++result.steps;
  result.truncated = step.truncated;
}

// Hands out every picture of one step; false when the sink has enough.
bool Show(std::span<const std::byte> pictures, size_t bytes, const EpisodeResult& so_far,
          const PictureSink& sink) {
  for (size_t at = 0; at + bytes <= pictures.size(); at += bytes) {
    if (!sink.picture(Bytes(pictures.subspan(at, bytes)), so_far)) return false;
  }
  return true;
}

Result<EpisodeResult> WatchFleet(Fleet& fleet, PolicyWorkspace& workspace, PolicyState& state,
                                 const EpisodeSpec& episode, size_t picture_bytes,
                                 const PictureSink& sink) {
  EpisodeResult result;
  fleet.Begin(0, 0, episode);
  while (true) {
    SlotEvent event;
    if (fleet.Wait({&event, 1}, std::chrono::milliseconds(1000)) == 0) {
      RETURN_IF_ERROR(fleet.status());
      continue;
    }
    if (event.kind == SlotEvent::Kind::kLost)
      return Status(Code::kUnavailable, "the actor failed while being watched");
    if (event.kind == SlotEvent::Kind::kFailed) return fleet.status();
    if (event.step > 0) Count(result, event.result);
    if (!Show(fleet.pictures(0), picture_bytes, result, sink)) return result;
    if (event.kind == SlotEvent::Kind::kEnded) {
      result.done = true;
      return result;
    }
    if (event.result.new_sequence) state.StartSequence();
    fleet.Act(0, state.Decide(workspace, fleet.observation(0)));
  }
}

Result<EpisodeResult> WatchNative(Environment& environment, PolicyWorkspace& workspace,
                                  PolicyState& state, const EpisodeSpec& episode,
                                  size_t picture_bytes, const PictureSink& sink) {
  std::vector<std::byte> observation(environment.spec().observation.bytes()),
      picture(picture_bytes);
  EpisodeResult result;
  environment.Reset(episode, observation);
  while (true) {
    if (environment.Render(picture) && !Show(picture, picture_bytes, result, sink)) return result;
    if (result.done) return result;
    const StepResult step = environment.Step(state.Decide(workspace, observation), observation);
    Count(result, step);
    if (step.new_sequence) state.StartSequence();
    result.done = step.terminated || step.truncated;
  }
}

// kConfig when there will be no pictures.
Status Announce(const EnvironmentSetup& setup, bool atari, const PictureSink& sink) {
  const EnvironmentSpec& spec = setup.environment;
  if (spec.render_height == 0) {
    return Status(
        Code::kConfig,
        spec.id +
            ": this environment draws no pictures; expected one that does, such as an Atari game");
  }
  return sink.start({static_cast<int>(spec.render_height), static_cast<int>(spec.render_width),
                     spec.render_rate, atari ? kAtariPixelAspect : 1.0});
}

Result<EpisodeResult> WatchAgent(const Policy& policy, uint64_t seed, const PictureSink& sink) {
  ASSIGN_OR_RETURN(const EnvironmentSetup setup, SetUpLearning(policy.config, 1, /*render=*/true));
  ASSIGN_OR_RETURN(const auto agent, MakePolicyAgent(policy, setup, setup.fleet->slots()));
  RETURN_IF_ERROR(Announce(setup, policy.config.env.id.empty(), sink));
  const auto picture_bytes =
      static_cast<size_t>(setup.environment.render_height * setup.environment.render_width * 3);
  PlayOptions play;
  play.spec = [&](size_t) { return setup.episodes.Make(seed, /*test=*/true); };
  play.seed = seed;
  play.greedy = policy.config.learning.learn.test_greedy;
  play.rewards = policy.config.learning.learn.rewards;
  if (setup.preset) play.life_loss = setup.preset->life_loss;
  play.shown = [&](const EpisodeRecord& record) {
    const EpisodeResult so_far{
        .fitness = record.score, .frames = record.frames, .steps = record.steps};
    return Show(setup.fleet->pictures(record.slot), picture_bytes, so_far, sink);
  };
  ASSIGN_OR_RETURN(const auto results, PlayEpisodes(*setup.fleet, *agent, play));
  return results[0];
}

}  // namespace

Result<EpisodeResult> Watch(const Policy& policy, uint64_t seed, const PictureSink& sink) {
  if (policy.config.Learns()) return WatchAgent(policy, seed, sink);
  ExperimentConfig config = policy.config;
  config.fleet.actors = config.fleet.slots = 1;
  ASSIGN_OR_RETURN(EnvironmentSetup setup, SetUpEvolution(config, /*render=*/true));
  RETURN_IF_ERROR(CheckFits(policy, setup));
  const EnvironmentSpec& spec = setup.environment;
  const FixedParameters parameters(policy.parameters);
  PolicyState state(*setup.model);
  PolicyWorkspace workspace(*setup.model);
  state.Load(workspace, {0, 0}, parameters);
  state.StartEpisode({.seed = seed});
  RETURN_IF_ERROR(Announce(setup, config.env.id.empty(), sink));
  const auto picture_bytes = static_cast<size_t>(spec.render_height * spec.render_width * 3);
  const EpisodeSpec episode = setup.episodes.Make(seed, /*test=*/true);
  if (setup.fleet != nullptr)
    return WatchFleet(*setup.fleet, workspace, state, episode, picture_bytes, sink);
  ASSIGN_OR_RETURN(const auto environment, setup.factory());
  return WatchNative(*environment, workspace, state, episode, picture_bytes, sink);
}

Result<EpisodeResult> RecordVideo(const Policy& policy, uint64_t seed, const RootedPath& file,
                                  double seconds_max) {
  std::unique_ptr<VideoWriter> video;
  Status failure;
  double left = 0;
  PictureFormat shown;
  std::vector<uint8_t> picture;
  PictureSink sink;
  sink.start = [&](const PictureFormat& format) -> Status {
    left = seconds_max * format.per_second;
    shown = format;
    ASSIGN_OR_RETURN(video, VideoWriter::Open(file, {.width = format.width,
                                                     .height = format.height,
                                                     .fps = format.per_second,
                                                     .pixel_aspect = format.pixel_aspect}));
    return Status::Ok();
  };
  sink.picture = [&](std::span<const uint8_t> rgb, const EpisodeResult& so_far) {
    picture.assign(rgb.begin(), rgb.end());
    DrawCaption(picture, shown.height, shown.width, "SCORE " + ScoreText(so_far.fitness));
    failure = video->AddFrame(picture);
    return failure.ok() && --left > 0;
  };
  ASSIGN_OR_RETURN(const EpisodeResult result, Watch(policy, seed, sink));
  RETURN_IF_ERROR(failure);
  RETURN_IF_ERROR(video->Close());
  return result;
}

}  // namespace samara
