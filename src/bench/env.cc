// Atari environments alone: frames per second of samara's actors, compared with what Python users
// step.
//
// Everybody plays one game at random, 4 frames an action, 84 x 84 grey, stacks of 4, on all cores.
// The contenders take turns for kEnvRounds rounds; each configuration keeps its best round and each
// contender its best configuration.
#include <fmt/format.h>

#include <algorithm>

#include "bench/environment_rows.h"
#include "core/clock.h"
#include "core/rng.h"
#include "env/atari_preset.h"
#include "play/environment_setup.h"

namespace samara::bench {

using nlohmann::json;

namespace {

constexpr int kEnvRounds = 2;
constexpr const char* kRivals[] = {"gymnasium", "ale_vector", "envpool"};
constexpr const char* kEnvPreset = "deepga-gpu";
constexpr double kFramesPerStep = 4;

json Row(const Options& options, const std::string& how, uint32_t envs, double frames_per_second) {
  return {{"who", "samara"},
          {"how", how},
          {"game", options.game},
          {"envs", envs},
          {"processes", Cores()},
          {"threads", 1},
          {"frames_per_second", frames_per_second}};
}

// A fleet of one actor a core with two slots each, under preset deepga-gpu.
Result<EnvironmentSetup> MakeActors(const Options& options) {
  ExperimentConfig config;
  config.env.game = options.game;
  config.env.preset = kEnvPreset;
  return SetUpEvolution(config);
}

// Whole episodes in the actors: frames between the first end of an episode and the last one within
// the time. A random actor builds no frame stack, because nothing reads it: the time of one per
// step, measured on all cores, is charged.
Result<json> WholeEpisodes(const Options& options, double stack_seconds) {
  ASSIGN_OR_RETURN(const EnvironmentSetup setup, MakeActors(options));
  Fleet& fleet = *setup.fleet;
  const PolicyModel& model = *setup.model;
  ASSIGN_OR_RETURN(PolicyPlayer* const player, fleet.policy_player());
  RETURN_IF_ERROR(
      player->InstallPolicies(model.Describe(), model.kernel().packed_size() * sizeof(float)));
  uint64_t episode = 0;
  const auto play = [&](uint32_t slot) {
    player->Play(slot, episode, setup.episodes.Make(episode, /*test=*/false), /*random=*/true);
    ++episode;
  };
  for (uint32_t s = 0; s < fleet.slots(); ++s) play(s);
  uint64_t frames = 0;
  std::optional<SteadyTime> first;
  SteadyTime last;
  while (!first || frames == 0 || SecondsSince(*first) < options.seconds) {
    SlotEvent event;
    if (fleet.Wait({&event, 1}, std::chrono::milliseconds(100)) == 0) continue;
    if (event.kind == SlotEvent::Kind::kFailed) return fleet.status();
    if (first) frames += event.result.frames;
    last = Now();
    if (!first) first = last;
    play(event.slot);
  }
  const double bare =
      static_cast<double>(frames) / std::chrono::duration<double>(last - *first).count();
  const double charged = 1 / (1 / bare + stack_seconds / Cores() / kFramesPerStep);
  json row = Row(options, "whole episodes", fleet.slots(), charged);
  row["frames_per_second_without_stack"] = bare;
  return row;
}

// The engine draws every action and builds the frame stacks, as for its own networks.
Result<json> EngineDriven(const Options& options) {
  ASSIGN_OR_RETURN(const EnvironmentSetup setup, MakeActors(options));
  ASSIGN_OR_RETURN(const AtariPreset preset, FindAtariPreset(kEnvPreset));
  Fleet& fleet = *setup.fleet;
  std::vector<FrameStack> stacks(
      fleet.slots(), FrameStack(preset.stack, setup.environment.observation.elements()));
  const CounterRng rng(DeriveKey(1, Purpose::kRandomPolicy));
  const auto actions = static_cast<uint64_t>(setup.environment.action.n);
  uint64_t episode = 0, draw = 0, frames = 0;
  const auto begin = [&](uint32_t slot) {
    fleet.Begin(slot, episode, setup.episodes.Make(episode, /*test=*/false));
    ++episode;
  };
  const auto answer = [&](const SlotEvent& event) {
    const auto bytes = fleet.observation(event.slot);
    const std::span frame(reinterpret_cast<const float*>(bytes.data()),
                          bytes.size() / sizeof(float));
    FrameStack& stack = stacks[event.slot];
    event.step == 0 ? stack.Reset(frame) : stack.Push(frame);
    const auto index = static_cast<int32_t>(rng.UniformInt(draw++, actions));
    fleet.Act(event.slot, {.index = index, .values = {}});
  };
  for (uint32_t s = 0; s < fleet.slots(); ++s) begin(s);
  std::vector<SlotEvent> events(fleet.slots());
  const SteadyTime start = Now();
  while (SecondsSince(start) < options.seconds) {
    const size_t n = fleet.Wait(events, std::chrono::milliseconds(100));
    for (const SlotEvent& event : std::span(events.data(), n)) {
      if (event.kind == SlotEvent::Kind::kFailed) return fleet.status();
      frames += event.result.frames;
      event.kind == SlotEvent::Kind::kObservation ? answer(event) : begin(event.slot);
    }
  }
  return Row(options, "driven by the learner process", fleet.slots(),
             static_cast<double>(frames) / SecondsSince(start));
}

// Seconds of one frame stack, when every core builds them.
Result<double> StackSeconds(const Options& options) {
  ASSIGN_OR_RETURN(const AtariPreset preset, FindAtariPreset(kEnvPreset));
  const auto elements = static_cast<size_t>(preset.height * preset.width);
  const std::vector<float> frame(elements, 0.5F);
  std::vector<FrameStack> stacks(Cores(), FrameStack(preset.stack, elements));
  const double rate = RatePerSecond(Cores(), std::min(options.seconds, 0.5), [&](uint32_t t) {
    for (int i = 0; i < 100; ++i) stacks[t].Push(frame);
    return 100.0;
  });
  return Cores() / rate;
}

json Headline(const Options& options, const EnvironmentRows& rows) {
  json headline = {{"game", options.game}, {"samara_frames_per_second", rows.BestOf("samara")}};
  for (const std::string who : kRivals) headline[who + "_frames_per_second"] = rows.BestOf(who);
  headline["ratio"] = rows.Ratio(kRivals);
  return headline;
}

}  // namespace

Result<json> Environments(const Options& options) {
  EnvironmentRows rows;
  ASSIGN_OR_RETURN(const double stack_seconds, StackSeconds(options));
  for (int round = 0; round < kEnvRounds; ++round) {
    ASSIGN_OR_RETURN(json whole, WholeEpisodes(options, stack_seconds));
    rows.Offer(std::move(whole));
    ASSIGN_OR_RETURN(json driven, EngineDriven(options));
    rows.Offer(std::move(driven));
    for (const std::string who : kRivals)
      if (options.rivals) RETURN_IF_ERROR(OfferRival(who, options, rows));
  }
  for (const json& row : rows.all()) options.say(EnvironmentRows::Line(row));
  return Report(rows.all(), Headline(options, rows));
}

}  // namespace samara::bench
