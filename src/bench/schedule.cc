// Three ways to put emulation and inference on the cores, each with torch's stock operations and
// with samara's kernels: those of the 2018 neuroevolution program.
//
//   one-at-a-time  each core plays one individual: step, evaluate, step. Nothing overlaps.
//   batched        all environments step, barrier, all individuals are evaluated, barrier.
//   pipelined      no barrier. samara: each actor plays whole episodes next to its emulator. torch:
//                  one of two groups is evaluated while the other's environments step.
//
// Everybody plays the same individuals: LargeModels of fresh genomes, each with weights of its own,
// under preset deepga-gpu with the same Python environment class. Emulation is recorded by that
// class (samara/trace.py), inference where it runs; every process or thread stays on one core,
// torch's own threads aside. Rates count the steps that ended in the window.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <filesystem>

#include "bench/bench.h"
#include "bench/individuals.h"
#include "bench/spans.h"
#include "core/mutex.h"
#include "core/rng.h"
#include "core/thread.h"
#include "env/atari_preset.h"
#include "evo/genome/decode.h"
#include "fleet/actor_process.h"
#include "play/environment_setup.h"

namespace samara::bench {

using nlohmann::json;
using std::chrono::milliseconds;

namespace {

constexpr uint32_t kPopulation = 16;
constexpr int kScheduleRounds = 2;
constexpr int64_t kWarmNs = 500'000'000;  // before the window
constexpr double kDrawnMs = 60;
constexpr milliseconds kWait{20};  // until the end of the window is noticed

// State that all schedules share, and the folder for traces of the present one.
struct Play : ParameterSource {
  uint32_t cores = Cores();
  double seconds = 1;
  AtariPreset preset;
  std::string game;
  EpisodeRule episodes;
  std::unique_ptr<PolicyModel> model;
  std::vector<std::vector<float>> individuals;
  Path folder;
  int64_t begin = 0, end = 0;  // the window of the schedule that runs

  void Write(PolicyHandle policy, std::span<float> canonical) const override {
    std::copy(individuals[policy.id].begin(), individuals[policy.id].end(), canonical.begin());
  }
  void OpenWindow() {
    begin = MonotonicNs() + kWarmNs;
    end = begin + static_cast<int64_t>(seconds * 1e9);
  }
  double frames_per_step() const { return static_cast<double>(preset.repeat); }
  bool Over() const { return MonotonicNs() >= end; }
  json Environment() const { return json::parse(AtariEnvironmentJson(preset, game)); }
  // Actors on the cores from `core` on.
  Result<std::unique_ptr<Fleet>> Actors(uint32_t actors, uint32_t slots, uint32_t core) const {
    ActorFleetOptions options;
    json environment = Environment();
    environment["trace"] = {{"folder", folder.string()}, {"core", core}};
    options.environment_json = environment.dump();
    options.actors = actors, options.slots = slots;
    return MakeActorFleet(options);
  }
  EpisodeSpec Episode(uint64_t number) const {
    return episodes.Make(DeriveKey(11, Purpose::kEpisodePopulation, 1, number, 0), false);
  }
};

Result<std::unique_ptr<Play>> MakePlay(const Options& options) {
  auto play = std::make_unique<Play>();
  ExperimentConfig config;
  config.env.game = play->game = options.game;
  config.fleet.actors = config.fleet.slots = 1;
  ASSIGN_OR_RETURN(EnvironmentSetup setup, SetUpEvolution(config));
  ASSIGN_OR_RETURN(play->preset, FindAtariPreset(config.env.preset));
  play->seconds = options.seconds;
  play->episodes = setup.episodes;
  play->model = std::move(setup.model);
  const NetworkDescription& network = play->model->kernel().network();
  for (uint32_t i = 0; i < kPopulation; ++i)
    DecodeParameters(Individual(i), network,
                     play->individuals.emplace_back(network.parameter_count));
  return play;
}

// One thread's inference: decides for a slot and records it.
class Inference {
 public:
  Inference(const PolicyModel& model, uint32_t core) : core_(core), workspace_(model) {}
  Action Decide(PolicyState& policy, std::span<const std::byte> observation) {
    Span span{.core = core_, .kind = SpanKind::kInference};
    span.cpu_begin = ThreadCpuNs(), span.begin = MonotonicNs();
    const Action action = policy.Decide(workspace_, observation);
    span.end = MonotonicNs(), span.cpu_end = ThreadCpuNs();
    spans_.push_back(span);
    return action;
  }
  PolicyWorkspace& workspace() { return workspace_; }
  Status Write(const Path& folder) const {
    const std::string_view bytes(reinterpret_cast<const char*>(spans_.data()),
                                 spans_.size() * sizeof(Span));
    return WriteFileAtomic(folder / fmt::format("inference-{}.spans", core_), bytes);
  }

 private:
  const uint32_t core_;
  PolicyWorkspace workspace_;
  std::vector<Span> spans_;
};

// Plays individuals in a fleet of one slot until the window ends.
Status PlayAlone(const Play& play, Fleet& fleet, uint32_t core) {
  PinThread(core);
  Inference inference(*play.model, core);
  PolicyState policy(*play.model);
  uint64_t number = core;  // of episodes; every core takes other individuals
  const auto begin = [&] {
    policy.Load(inference.workspace(), {static_cast<uint32_t>(number % kPopulation), 0}, play);
    const EpisodeSpec episode = play.Episode(number);
    policy.StartEpisode(episode);
    fleet.Begin(0, number, episode);
    number += play.cores;
  };
  begin();
  while (!play.Over()) {
    SlotEvent event;
    if (fleet.Wait({&event, 1}, kWait) == 0) continue;
    if (event.kind == SlotEvent::Kind::kFailed) return fleet.status();
    if (event.kind == SlotEvent::Kind::kObservation)
      fleet.Act(0, inference.Decide(policy, fleet.observation(0)));
    else
      begin();
  }
  return inference.Write(play.folder);
}

Status OneAtATime(Play& play) {
  std::vector<std::unique_ptr<Fleet>> fleets;
  for (uint32_t core = 0; core < play.cores; ++core) {
    ASSIGN_OR_RETURN(auto fleet, play.Actors(1, 1, core));
    fleets.push_back(std::move(fleet));
  }
  play.OpenWindow();
  std::vector<Status> results(play.cores);
  ThreadGroup threads(nullptr);  // they return when the window ends
  RETURN_IF_ERROR(threads.Start("alone-", play.cores, [&](size_t core) {
    results[core] = PlayAlone(play, *fleets[core], static_cast<uint32_t>(core));
  }));
  threads.Join();
  for (const Status& result : results) RETURN_IF_ERROR(result);
  return Status::Ok();
}

// The first thread commands the fleet, all evaluate. Individual, slot and core stay together.
class Batched {
 public:
  Batched(const Play& play, Fleet& fleet)
      : play_(play), fleet_(fleet), together_(play.cores), actions_(kPopulation) {
    PolicyWorkspace workspace(*play.model);
    for (uint32_t i = 0; i < kPopulation; ++i)
      policies_.emplace_back(*play.model).Load(workspace, {i, 0}, play);
  }

  Status Run() {
    for (uint32_t slot = 0; slot < kPopulation; ++slot) Begin(slot);
    ThreadGroup threads(nullptr);  // they return when the window ends
    const Status started = threads.Start(
        "batched-", play_.cores, [this](size_t core) { Rounds(static_cast<uint32_t>(core)); });
    if (!started.ok()) return started;
    threads.Join();
    return status_;
  }

 private:
  void Begin(uint32_t slot) {
    const EpisodeSpec episode = play_.Episode(number_);
    policies_[slot].StartEpisode(episode);
    fleet_.Begin(slot, number_++, episode);
  }

  // 1 every slot has an observation, 2 barrier, 3 evaluate, 4 barrier, 5 act
  void Rounds(uint32_t core) {
    PinThread(core);
    Inference inference(*play_.model, core);
    for (bool first = core == 0;;) {
      if (first) Gather();
      together_.arrive_and_wait();
      if (over_) break;
      for (uint32_t i = core; i < kPopulation; i += play_.cores)
        actions_[i] = inference.Decide(policies_[i], fleet_.observation(i));
      together_.arrive_and_wait();
      for (uint32_t i = 0; first && i < kPopulation; ++i) fleet_.Act(i, actions_[i]);
    }
    const Status written = inference.Write(play_.folder);
    const MutexLock lock(mu_);
    if (!written.ok()) status_ = written;
  }

  void Gather() {
    std::vector<SlotEvent> events(kPopulation);
    for (uint32_t ready = 0; ready < kPopulation && !over_;) {
      const size_t n = fleet_.Wait(events, kWait);
      for (const SlotEvent& event : std::span(events.data(), n)) {
        if (event.kind == SlotEvent::Kind::kFailed) status_ = fleet_.status();
        if (event.kind == SlotEvent::Kind::kObservation)
          ++ready;
        else if (status_.ok())
          Begin(event.slot);
      }
      over_ = !status_.ok() || play_.Over();
    }
  }

  const Play& play_;
  Fleet& fleet_;
  std::barrier<> together_;
  std::vector<PolicyState> policies_;
  // written by the first thread between the barriers
  std::vector<Action> actions_;
  uint64_t number_ = 0;
  bool over_ = false;
  Mutex mu_;  // of status_, after the last barrier
  Status status_;
};

Status InBatches(Play& play) {
  ASSIGN_OR_RETURN(const auto fleet, play.Actors(play.cores, kPopulation, 0));
  Batched batched(play, *fleet);
  play.OpenWindow();
  return batched.Run();
}

// Two slots an actor: the parameters of the next episode are ready when an episode ends.
Status Pipelined(Play& play) {
  ASSIGN_OR_RETURN(const auto fleet, play.Actors(play.cores, 2 * play.cores, 0));
  const PopulationKernel& kernel = play.model->kernel();
  ASSIGN_OR_RETURN(PolicyPlayer* const player, fleet->policy_player());
  RETURN_IF_ERROR(
      player->InstallPolicies(play.model->Describe(), kernel.packed_size() * sizeof(float)));
  uint64_t number = 0;
  const auto begin = [&](uint32_t slot) {
    const auto bytes = player->parameters(slot);
    kernel.Pack(play.individuals[number % kPopulation],
                {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)});
    player->Play(slot, number, play.Episode(number), /*random=*/false);
    ++number;
  };
  for (uint32_t slot = 0; slot < fleet->slots(); ++slot) begin(slot);
  play.OpenWindow();
  uint32_t busy = fleet->slots();
  while (busy > 0) {
    SlotEvent event;
    const size_t n = fleet->Wait({&event, 1}, kWait);
    if (n > 0 && event.kind == SlotEvent::Kind::kFailed) return fleet->status();
    if (n > 0) play.Over() ? static_cast<void>(--busy) : begin(event.slot);
    // episodes are broken off, so that the actors write their last records
    for (uint32_t slot = 0; slot < fleet->slots() && play.Over(); ++slot) player->Abandon(slot);
  }
  return Status::Ok();
}

struct Contender {
  const char* name;
  const char* how_torch;
  const char* how_samara;
  Status (*samara)(Play& play);
};
constexpr Contender kContenders[] = {
    {"one-at-a-time", "a process a core: step, evaluate one network, step",
     "a thread and an actor a core: step, evaluate one network, step", OneAtATime},
    {"batched", "all step, barrier, grouped convolutions and baddbmm, barrier",
     "all step, barrier, every core evaluates its share, barrier", InBatches},
    {"pipelined", "one of two groups is evaluated while the other steps",
     "no barrier: actors play whole episodes next to their emulators", Pipelined},
};

Result<Schedule> RunSamara(const Contender& contender, Play& play) {
  ASSIGN_OR_RETURN(const auto scratch, Scratch::Make());
  play.folder = scratch->path();
  RETURN_IF_ERROR(contender.samara(play));
  Schedule schedule{.name = contender.name, .operations = "samara", .how = contender.how_samara};
  schedule.begin = play.begin, schedule.end = play.end;
  ASSIGN_OR_RETURN(schedule.spans, ReadSpans(scratch->path()));
  if (contender.samara == Pipelined) FillGaps(schedule.spans);
  return schedule;
}

// `waiting`: what torch's idle threads do, "active" or "passive" (OMP_WAIT_POLICY).
Result<Schedule> RunTorch(const Contender& contender, const std::string& waiting,
                          const Play& play) {
  ASSIGN_OR_RETURN(const auto scratch, Scratch::Make());
  RETURN_IF_ERROR(WriteFloats(scratch->path() / "population.f32", play.individuals));
  ASSIGN_OR_RETURN(
      const json window,
      RunRival("schedule_rivals.py",
               {contender.name, waiting, std::to_string(play.cores), std::to_string(play.seconds),
                scratch->path().string(), DefaultPythonPath(), play.Environment().dump()}));
  Schedule schedule{.name = contender.name, .operations = "torch", .how = contender.how_torch};
  schedule.begin = window.at("begin"), schedule.end = window.at("end");
  ASSIGN_OR_RETURN(schedule.spans, ReadSpans(scratch->path()));
  return schedule;
}

json Row(const Schedule& s, double frames_per_step) {
  const double environment = s.Share(/*inference=*/false), inference = s.Share(/*inference=*/true);
  return {{"schedule", s.name},
          {"operations", s.operations},
          {"how", s.how},
          {"frames_per_second", s.FramesPerSecond(frames_per_step)},
          {"hours_per_billion_frames", s.HoursPerBillion(frames_per_step)},
          {"environment_share", environment},
          {"inference_share", inference},
          {"idle_share", 1 - environment - inference},
          {"others_share", s.others_share}};
}

// Runs one contender and keeps it in `best` if it is faster.
Status Try(const Contender& contender, const char* waiting, const Options& options, Play& play,
           Schedule& best) {
  const OthersShare others;
  ASSIGN_OR_RETURN(Schedule s, waiting == nullptr ? RunSamara(contender, play)
                                                  : RunTorch(contender, waiting, play));
  s.cores = play.cores;
  s.others_share = others.get();
  const double rate = s.FramesPerSecond(play.frames_per_step());
  options.say(fmt::format("{}, {}{}{}: {:.0f} frames/s", s.name, s.operations,
                          waiting == nullptr ? "" : ", threads wait ",
                          waiting == nullptr ? "" : waiting, rate));
  if (best.spans.empty() || best.FramesPerSecond(play.frames_per_step()) < rate)
    best = std::move(s);
  return Status::Ok();
}

// Takes turns; keeps the best of each, in the order of the table, torch first.
Result<std::vector<Schedule>> RunAll(const Options& options, Play& play) {
  std::vector<Schedule> best(2 * std::size(kContenders));
  for (int round = 0; round < kScheduleRounds; ++round) {
    for (size_t i = 0; i < std::size(kContenders); ++i) {
      for (const char* waiting : {"active", "passive"})
        if (options.rivals)
          RETURN_IF_ERROR(Try(kContenders[i], waiting, options, play, best[2 * i]));
      RETURN_IF_ERROR(Try(kContenders[i], nullptr, options, play, best[2 * i + 1]));
    }
  }
  std::erase_if(best, [](const Schedule& s) { return s.spans.empty(); });
  return best;
}

}  // namespace

Result<json> Schedules(const Options& options) {
  if (!options.device.empty()) return SchedulesOnDevice(options);
  ASSIGN_OR_RETURN(const auto play, MakePlay(options));
  const double frames_per_step = play->frames_per_step();
  ASSIGN_OR_RETURN(const auto schedules, RunAll(options, *play));
  json rows = json::array();
  for (const Schedule& s : schedules) rows.push_back(Row(s, frames_per_step));
  const std::string out = options.out.empty() ? "schedule.svg" : options.out;
  const std::string title =
      fmt::format("{}, {} different LargeModels, {} cores of {}", options.game, kPopulation,
                  play->cores, Machine()["cpu"].get<std::string>());
  RETURN_IF_ERROR(WriteFileAtomic(Path(out), Picture(schedules, frames_per_step, kDrawnMs, title)));
  options.say("timeline: " + out);

  json headline = rows.back();  // samara, pipelined
  headline["game"] = options.game;
  headline["population"] = kPopulation;
  headline["picture"] = out;
  const auto rate = headline["frames_per_second"].get<double>();
  for (const json& row : rows) {
    const std::string key = "ratio_to_" + row["operations"].get<std::string>() + "_" +
                            row["schedule"].get<std::string>();
    if (row != rows.back()) headline[key] = rate / row["frames_per_second"].get<double>();
  }
  return Report(std::move(rows), std::move(headline));
}

}  // namespace samara::bench
