// V-trace on an Atari game: each setup alone on all cores, all together, and another system at the
// same work.
//
// packing = end_to_end * (1 / environments + 1 / inference + 1 / learning), all in game frames per
// second: 1 when no core ever waits and nothing is done twice. With a GPU (--device) its part is
// device_share, and packing that of the environments, which have the cores. Environments alone: the
// same actor processes under the same server, acting at random. Inference alone: one agent a core,
// batches as the run has them. Learning alone: one agent a core, updates of the run's size. All
// together: a run from its preset, without its first seconds.
#include <fmt/format.h>

#include <bit>

#include "bench/bench.h"
#include "config/presets.h"
#include "core/cpu.h"
#include "core/log.h"
#include "core/rng.h"
#include "core/thread.h"
#include "play/environment_setup.h"
#include "rl/algorithms/registry.h"
#include "rl/inference/inference_server.h"
#include "storage/metrics.h"
#include "train/train.h"

namespace samara::bench {

using nlohmann::json;

namespace {

constexpr const char* kVtracePreset = "atari/vtrace-desktop";

Result<ExperimentConfig> Config(const Options& options, const Device& device) {
  ExperimentConfig config;
  ASSIGN_OR_RETURN(const std::string toml, PresetText(kVtracePreset));
  config.ChooseAlgorithm(toml);
  ConfigTable table = config.Table();
  RETURN_IF_ERROR(table.ParseToml(toml, kVtracePreset));
  config.env.game = options.game;
  config.run.random_episodes = config.learning.learn.test_episodes = 0;
  config.run.video = false;
  // a fixed workload, whatever the preset learns best with
  config.learning.learn.environments = 32, config.learning.learn.batch = 16;
  config.run.device = device.text();
  // a GPU learns from the whole batch at once
  config.learning.learn.shards = device.cuda ? 1 : std::min<int64_t>(16, std::bit_floor(Cores()));
  config.learning.network.precision =
      ValueOf<Precision>(kPrecisionNames, options.precision).value_or(PrecisionsOf(device)[0]);
  RETURN_IF_ERROR(Check(config.learning));
  return config;
}

AgentSetup Setup(const ExperimentConfig& config, const EnvironmentSetup& on, const Device& device) {
  AgentSetup setup;
  setup.config = config.learning;
  setup.environment = on.environment;
  setup.stack = on.stack;
  setup.slots = setup.rows_max = static_cast<uint32_t>(config.learning.learn.environments);
  setup.learns_on = setup.infers_on = device;
  return setup;
}

// Frames per second of the environments under the server, acting at random.
Result<double> EnvironmentsAlone(const EnvironmentSetup& setup, double seconds) {
  RandomModel random(setup.environment);
  ServerHooks hooks;
  hooks.next = [&](uint32_t slot, uint64_t number) -> std::optional<EpisodeSpec> {
    return setup.episodes.Make(DeriveKey(1, Purpose::kRandomPolicy, 0, slot, number), true);
  };
  InferenceServer server(*setup.fleet, random, nullptr,
                         {.batch_max = setup.fleet->slots(), .wait = 0.0005}, hooks);
  Status served;
  double rate = 0;
  {
    ThreadGroup serving([&] { server.Stop(); });
    RETURN_IF_ERROR(serving.Start("serving", 1, [&](size_t) { served = server.Serve(); }));
    std::this_thread::sleep_for(std::chrono::duration<double>(0.2 * seconds));  // first resets
    const SteadyTime start = Now();
    const uint64_t before = server.counters().frames;
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    rate = static_cast<double>(server.counters().frames - before) / SecondsSince(start);
  }
  RETURN_IF_ERROR(served);
  return rate;
}

// One agent with rows of noise: what it costs does not depend on what it sees.
class Worker {
 public:
  Worker(const AgentSetup& setup, uint32_t rows)
      : setup_(setup),
        agent_(MakeAgent(setup).ValueOrThrow()),
        batch_(agent_->shape(), setup.rows_max),
        frame_(agent_->shape().observation_bytes) {
    for (size_t i = 0; i < frame_.size(); ++i)
      frame_[i] = static_cast<std::byte>(CounterRng(1).Bits(i));
    for (uint32_t i = 0; i < rows; ++i) {
      InferenceRow& row = batch_.rows.emplace_back();
      row.slot = i;
      row.observation = frame_;
    }
    for (InferenceRow& row : batch_.rows) row.first = true;
    Infer();
    for (InferenceRow& row : batch_.rows) row.first = false;
  }
  double Infer() {
    batch_.version = InferenceBatch::kNewest;
    CHECK(agent_->Infer(batch_).ok());
    return static_cast<double>(batch_.rows.size());
  }
  // One update on the same unrolls; returns the steps learned from.
  double Learn() {
    const LearnConfig& learn = setup_.config.learn;
    if (unrolls_.empty()) MakeUnrolls();
    CHECK(agent_->Update(unrolls_, 0).ok());
    return static_cast<double>(learn.batch * learn.unroll);
  }

 private:
  void MakeUnrolls() {
    const ModelShape& s = agent_->shape();
    const auto count = static_cast<uint32_t>(setup_.config.learn.batch);
    const auto length = static_cast<uint32_t>(setup_.config.learn.unroll);
    store_ = std::make_unique<UnrollStore>(
        EntryShape{.observation_bytes = s.observation_bytes,
                   .action_values = s.action_values,
                   .behaviour = s.behaviour,
                   .values = s.values,
                   .state = s.state,
                   .history_bytes = s.history_bytes},
        UnrollConfig{.slots = count, .length = length, .buffers = 2 * count});
    const std::vector<float> zeros(std::max({s.state, s.behaviour, size_t{1}}));
    const std::vector<std::byte> history(s.history_bytes);
    for (uint32_t t = 0; t <= length; ++t) {
      for (uint32_t slot = 0; slot < count; ++slot) {
        CHECK(store_->Reserve(slot));
        EntryHeader header;
        header.episode_step = t;
        store_->Append(slot, {.header = header,
                              .observation = frame_,
                              .final_observation = {},
                              .action_values = {},
                              .behaviour = std::span(zeros).first(s.behaviour),
                              .values = std::span(zeros).first(s.values),
                              .state = std::span(zeros).first(s.state),
                              .history = history});
      }
    }
    unrolls_ = store_->Take(count);
  }

  const AgentSetup setup_;
  const std::unique_ptr<Agent> agent_;
  InferenceBatch batch_;
  std::vector<std::byte> frame_;
  std::unique_ptr<UnrollStore> store_;
  std::vector<UnrollStore::Loan> unrolls_;
};

// A run from the preset; frames per second after the first third, and rows in a batch.
Result<std::pair<double, double>> EndToEnd(ExperimentConfig config, double seconds) {
  ASSIGN_OR_RETURN(const auto scratch, Scratch::Make());
  config.run.minutes = 1.5 * seconds / 60;
  TrainOptions options;
  options.out = scratch->path() / "run";
  options.quiet = true;
  SetLogLevel(LogLevel::kWarning);
  const auto result = Train(config, options);
  SetLogLevel(LogLevel::kInfo);
  RETURN_IF_ERROR(result.status());
  ASSIGN_OR_RETURN(const std::vector<json> lines, ReadMetrics(*options.out / "metrics.jsonl"));
  double frames = 0, time = 0, rows = 0, n = 0;
  double last_seconds = 0, last_frames = 0;
  for (const json& line : lines) {
    if (line.contains("event") || !line.contains("update")) continue;
    const double at = line["seconds"], done = line["frames"];
    if (last_seconds > 0.5 * seconds) {
      frames += done - last_frames, time += at - last_seconds;
      rows += line["rows_per_batch"].get<double>(), ++n;
    }
    last_seconds = at, last_frames = done;
  }
  if (time == 0)
    return Status(Code::kUsage, "--seconds is too short for a run to settle: expected 10 or more");
  return std::pair(frames / time, rows / n);
}

}  // namespace

Result<json> Vtrace(const Options& options) {
  if (!HasAgents()) return Status(Code::kConfig, "bench vtrace needs a build with torch");
  ASSIGN_OR_RETURN(const Device device,
                   DeviceNamed(options.device.empty() ? "cpu" : options.device));
  ASSIGN_OR_RETURN(const ExperimentConfig config, Config(options, device));
  const uint32_t cores = Cores(), workers_count = device.cuda ? 1 : cores;
  const auto slots = static_cast<uint32_t>(config.learning.learn.environments);
  options.say("all together");
  ASSIGN_OR_RETURN(const auto together, EndToEnd(config, std::max(10.0, options.seconds)));
  const auto [end_to_end, rows] = together;
  ASSIGN_OR_RETURN(EnvironmentSetup alone, SetUpLearning(config, slots));
  options.say("environments alone");
  ASSIGN_OR_RETURN(const double environments, EnvironmentsAlone(alone, options.seconds));
  const AgentSetup setup = Setup(config, alone, device);
  alone.fleet.reset();
  const auto repeat = static_cast<double>(setup.environment.frames_per_step);
  options.say("inference and learning alone");
  std::vector<std::unique_ptr<Worker>> workers;
  for (uint32_t i = 0; i < workers_count; ++i)
    workers.push_back(
        std::make_unique<Worker>(setup, static_cast<uint32_t>(std::clamp(rows, 1.0, 1.0 * slots))));
  const double inference = RatePerSecond(workers_count, options.seconds,
                                         [&](uint32_t i) { return workers[i]->Infer(); });
  const double learning = repeat * RatePerSecond(workers_count, options.seconds,
                                                 [&](uint32_t i) { return workers[i]->Learn(); });
  workers.clear();
  const double computing = 1 / (repeat * inference) + 1 / learning;  // seconds of a frame
  json result = {
      {"game", options.game},
      {"network", config.learning.network.name},
      {"precision", NameOf<Precision>(kPrecisionNames, config.learning.network.precision)},
      {"environment_frames_per_second", environments},
      {"inference_rows_per_second", inference},
      {"learner_frames_per_second", learning},
      {"end_to_end_frames_per_second", end_to_end},
      {"device", NameOf(device, FindGpus())},
      {"packing", end_to_end * ((device.cuda ? 0 : computing) + 1 / environments)},
      {"device_share", device.cuda ? json(end_to_end * computing) : json()},
      {"rows_per_batch", rows},
      {"rival", nullptr},
      {"rival_frames_per_second", nullptr},
      {"ratio", nullptr},
      {"machine", Machine()}};
  if (!options.rivals) return result;
  options.say("the rival");
  auto rival = RunRival("vtrace_rivals.py", {options.game, std::to_string(cores),
                                             fmt::format("{}", std::max(30.0, options.seconds))});
  if (!rival.ok()) return rival.status();
  const json& row = *rival;
  if (row.contains("frames_per_second") && row["frames_per_second"].is_number()) {
    result["rival"] = row["rival"];
    result["rival_frames_per_second"] = row["frames_per_second"];
    result["ratio"] = end_to_end / row["frames_per_second"].get<double>();
  } else {
    result["rival_missing"] = row.value("reason", "");
  }
  return result;
}

}  // namespace samara::bench
