#include "bench/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "config/presets.h"
#include "core/clock.h"
#include "core/config.h"
#include "core/suggestion.h"
#include "core/thread.h"
#include "env/atari_preset.h"
#include "play/environment_setup.h"

namespace samara::bench {

using nlohmann::json;

Result<json> Vectors(const Options& options);
Result<json> Vtrace(const Options& options);
Result<json> Population(const Options& options);
Result<json> AtariGa(const Options& options);
Result<json> Environments(const Options& options);
Result<json> Inference(const Options& options);
Result<json> Collectives(const Options& options);
Result<json> Replicate(const Options& options);
Result<json> Schedules(const Options& options);
Result<json> NoiseKinds(const Options& options);
Result<json> Materialisation(const Options& options);
Result<json> NativeRollouts(const Options& options);
Result<json> EvolutionStrategies(const Options& options);
Result<json> EsUpdate(const Options& options);
Result<json> SafeMutations(const Options& options);
Result<json> TimeToScore(const Options& options);

namespace {
constexpr Workload kWorkloads[] = {
    {"population",
     "evaluations of many different networks on recorded game frames, compared with torch",
     Population},
    {"atari-ga", "emulation alone, inference alone, both packed on the cores", AtariGa,
     "Each placement of inference plays five times --seconds with random actions, as long with "
     "networks,\n"
     "and then a whole generation of the desktop preset, which takes a minute or more whatever "
     "--seconds is."},
    {"env",
     "Atari environments alone, compared with Gymnasium, ALE's vector environment and EnvPool",
     Environments},
    {"vector",
     "Atari environments from Python: samara.make_vec, ALE's vector environment and EnvPool",
     Vectors,
     "Frames per second of a random player: 4 frames an action, 84 x 84 grey, stacks of 4, all "
     "cores; the\n"
     "three take turns for two rounds, and each keeps its best configuration. ratio: samara over "
     "the best\n"
     "rival. `make envpool` and scripts/setup install the rivals; those that are missing are "
     "null."},
    {"vtrace", "V-trace on an Atari game: each setup alone, all together, and Stable-Baselines3",
     Vtrace},
    {"inference", "transports of central inference with a null model, compared with bare ones",
     Inference},
    {"collectives", "collectives between ranks, by size and transport, compared with bare c10d",
     Collectives,
     "All-reduce, all-gather and broadcast of 4 bytes to 16 MiB between processes of this machine, "
     "one\n"
     "thread each: microseconds a call and bus bandwidth over shared memory (shared), over Gloo in "
     "the\n"
     "fixed order (gloo) and as fast mode sums large buckets (gloo_fast), compared with bare "
     "c10d\n"
     "and the machine's MPI where it is installed. A row takes a tenth of --seconds."},
    {"replicate", "a training step on several ranks, compared with torch's DistributedDataParallel",
     Replicate,
     "A perceptron 784-1024-1024-10, SGD with momentum, 64 rows a rank; medians over 40 steps, and "
     "over\n"
     "--pairs of runs with the rival's. In fast mode and in the rival torch has cores / RANKS "
     "threads\n"
     "a rank, at least one, in the runs of one rank too; in exact mode one, and eight replicas.\n"
     "  strong_scaling, weak_scaling  one rank with the whole batch, with one rank's: over the "
     "step\n"
     "  exposed_communication_ms      of the step, waiting for a reduction\n"
     "  ratio                         the rival's step over ours"},
    {"schedule", "one network at a time, batched, pipelined: rates, shares and a timeline (--out)",
     Schedules},
    {"rollout", "whole episodes of native environments with small policies", NativeRollouts},
    {"safe-mutation",
     "sensitivities that scale safe mutations, compared with torch's backward passes",
     SafeMutations},
    {"noise", "normal numbers per second of each kind of noise", NoiseKinds},
    {"decode", "children per second from a cached parent, compared with copying memory",
     Materialisation},
    {"es", "generations of evolution strategies on CartPole, compared with evosax",
     EvolutionStrategies},
    {"es-update", "the update of evolution strategies, compared with its noise and copying memory",
     EsUpdate},
    {"time-to-score",
     "time until an agent plays a --task, compared with rivals' published settings", TimeToScore,
     "Tasks: cartpole (475), acrobot (-100), pendulum (-200), hopper (2,000), halfcheetah "
     "(1,500),\n"
     "halfcheetah-sac (5,000), pong (18), breakout (100). Rivals: stable-baselines3, cleanrl (all\n"
     "tasks), sample-factory (hopper, halfcheetah, pong, breakout), rltools (pendulum; it uses "
     "one\n"
     "core: SAMARA_CORES=1). Each seed trains until 20 fresh episodes have this mean return,\n"
     "samara's preset and the rivals in turns. Medians over the seeds, ratio to the quickest "
     "rival;\n"
     "null: not reached. With --runs FOLDER the runs and the rivals' curves stay, and a bench "
     "that\n"
     "was cut goes on with the one that it was cut in. With --patience X a rival that needs\n"
     "more than X times samara's seconds is given up, and ratio_above says by how much at\n"
     "least samara was quicker."},
};
}  // namespace

std::span<const Workload> Workloads() { return kWorkloads; }

Result<const Workload*> FindWorkload(const std::string& name) {
  std::vector<std::string> names;
  for (const Workload& w : kWorkloads) {
    if (name == w.name) return &w;
    names.push_back(w.name);
  }
  return Status(Code::kUsage, fmt::format("bench {}: no such workload; did you mean {}? (all: {})",
                                          name, Nearest(name, names), fmt::join(names, ", ")));
}

double RatePerSecond(uint32_t threads, double seconds,
                     const std::function<double(uint32_t)>& work) {
  std::atomic<bool> stop{false};
  std::vector<double> rates(threads);
  {
    ThreadGroup workers([&] { stop = true; });
    ThrowIfError(workers.Start("bench-", threads, [&](size_t t) {
      const auto worker = static_cast<uint32_t>(t);
      (void)work(worker);  // warm
      const SteadyTime start = Now();
      double done = 0;
      do {
        done += work(worker);
      } while (!stop.load(std::memory_order_relaxed));
      rates[t] = done / SecondsSince(start);
    }));
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

json Report(json rows, json headline) {
  json result = headline.is_null() ? rows.front() : std::move(headline);
  result["all"] = std::move(rows);
  result["machine"] = Machine();
  return result;
}

Result<std::unique_ptr<Scratch>> Scratch::Make() {
  std::error_code failed;
  const Path folder = std::filesystem::temp_directory_path(failed);
  if (failed)
    return Status(Code::kCannotCreate, "no folder for temporary files: " + failed.message() +
                                           "; TMPDIR names one that is not there");
  std::string name = (folder / "samara-bench-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr)
    return Status(Code::kCannotCreate, name + ": " + std::strerror(errno));
  return std::unique_ptr<Scratch>(new Scratch(name));
}

Scratch::~Scratch() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Result<ExperimentConfig> DesktopConfig(const std::string& game) {
  constexpr const char* kPreset = "atari/deep-ga-desktop";
  ExperimentConfig config;
  ConfigTable table = config.Table();
  ASSIGN_OR_RETURN(const std::string preset, PresetText(kPreset));
  RETURN_IF_ERROR(table.ParseToml(preset, kPreset));
  config.env.game = game;
  return config;
}

Status WriteFloats(const Path& path, const std::vector<std::vector<float>>& rows) {
  std::ofstream file(path, std::ios::binary);
  for (const auto& row : rows)
    file.write(reinterpret_cast<const char*>(row.data()),
               static_cast<std::streamsize>(row.size() * sizeof(float)));
  if (file.flush()) return Status::Ok();
  return {Code::kIoError, path.string() + ": cannot be written"};
}

Result<std::vector<std::vector<float>>> RecordInputs(const std::string& game, size_t count) {
  ExperimentConfig config;
  config.env.game = game;
  config.fleet.actors = config.fleet.slots = 1;
  ASSIGN_OR_RETURN(const EnvironmentSetup setup, SetUpEvolution(config));
  ASSIGN_OR_RETURN(const AtariPreset preset, FindAtariPreset(config.env.preset));
  Fleet& fleet = *setup.fleet;
  FrameStack stack(preset.stack, setup.environment.observation.elements());
  const CounterRng rng(DeriveKey(1, Purpose::kRandomPolicy));
  const auto actions = static_cast<uint64_t>(setup.environment.action.n);
  std::vector<std::vector<float>> inputs;
  uint64_t draw = 0;
  const auto begin = [&] { fleet.Begin(0, draw, setup.episodes.Make(draw, /*test=*/true)); };
  begin();
  while (inputs.size() < count) {
    SlotEvent event;
    if (fleet.Wait({&event, 1}, std::chrono::milliseconds(10'000)) == 0)
      return Status(Code::kUnavailable, "the simulator does not answer");
    if (event.kind == SlotEvent::Kind::kFailed) return fleet.status();
    const auto bytes = fleet.observation(0);
    CHECK(setup.environment.observation.dtype == DType::kFloat32) << config.env.preset;
    const std::span frame(reinterpret_cast<const float*>(bytes.data()),
                          bytes.size() / sizeof(float));
    if (event.kind != SlotEvent::Kind::kObservation) {
      begin();
      continue;
    }
    event.step == 0 ? stack.Reset(frame) : stack.Push(frame);
    inputs.emplace_back(stack.input().begin(), stack.input().end());
    fleet.Act(0, {.index = static_cast<int32_t>(rng.UniformInt(draw++, actions)), .values = {}});
  }
  return inputs;
}

}  // namespace samara::bench
