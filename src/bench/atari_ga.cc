// The Deep GA on an Atari game: each setup alone on all cores, both together, and a whole
// generation.
//
// packing = end_to_end * (1 / emulation + 1 / inference), all in game frames per second: 1 when no
// core ever waits. Emulation alone: the same actor processes, playing at random, so that no network
// runs. Inference alone: the same executor on recorded frames, one thread a core, each staying with
// one network.
#include <fmt/format.h>

#include "bench/bench.h"
#include "bench/individuals.h"
#include "core/clock.h"
#include "core/mutex.h"
#include "core/rng.h"
#include "evo/genome/decode.h"
#include "play/environment_setup.h"

namespace samara::bench {

using nlohmann::json;

namespace {

constexpr size_t kFrames = 64;
constexpr uint64_t kFramesMax = 4000;  // of an episode

// Hands out tasks until `seconds` have passed since the first result. Frames between the first
// result and the last one are what the cores did in steady state.
class SteadyWork : public WorkSource {
 public:
  SteadyWork(std::span<const Task> tasks, double seconds) : tasks_(tasks), seconds_(seconds) {}
  std::optional<uint32_t> Claim() override {
    const MutexLock lock(mu_);
    if (Over()) return std::nullopt;
    return claimed_++;
  }
  Task TaskOf(uint32_t index) const override { return tasks_[index]; }
  void Post(uint32_t, const EpisodeResult& result) override {
    const MutexLock lock(mu_);
    const SteadyTime now = Now();
    if (posted_++ == 0) {
      first_ = now;
      return;  // began before the window
    }
    // once nothing is claimed any more the cores run dry: that is not steady
    if (SecondsSince(first_) <= seconds_) frames_ += result.frames, end_ = now;
  }
  bool Finished() const override {
    const MutexLock lock(mu_);
    return posted_ > 0 && posted_ == claimed_ && Over();
  }
  double FramesPerSecond() const {
    const MutexLock lock(mu_);
    return static_cast<double>(frames_) / std::chrono::duration<double>(end_ - first_).count();
  }

 private:
  bool Over() const REQUIRES(mu_) {
    return claimed_ == tasks_.size() || (posted_ > 0 && SecondsSince(first_) > seconds_);
  }

  const std::span<const Task> tasks_;
  const double seconds_;
  mutable Mutex mu_;
  uint32_t claimed_ GUARDED_BY(mu_) = 0, posted_ GUARDED_BY(mu_) = 0;
  uint64_t frames_ GUARDED_BY(mu_) = 0;
  SteadyTime first_ GUARDED_BY(mu_), end_ GUARDED_BY(mu_);
};

std::vector<Task> Tasks(size_t count, bool random) {
  std::vector<Task> tasks;
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t key = DeriveKey(11, Purpose::kEpisodePopulation, 1, i, 0);
    tasks.push_back({random ? kRandomHandle : PolicyHandle{i, 0},
                     Role::kTrain,
                     {key, static_cast<int32_t>(i % 30), static_cast<int64_t>(kFramesMax)}});
  }
  return tasks;
}

Result<double> SteadyRate(Evaluator& evaluator, const NetworkDescription& network, bool random,
                          double seconds) {
  const auto tasks = Tasks(100'000, random);
  SteadyWork work(tasks, seconds);
  RETURN_IF_ERROR(evaluator.Play(FreshGenomes(network), work));
  return work.FramesPerSecond();
}

double InferenceRate(const NetworkDescription& network, const Options& options,
                     const std::vector<std::vector<float>>& inputs) {
  const PopulationKernel kernel(network);
  const uint32_t cores = Cores();
  std::vector<AlignedFloats> packed;
  std::vector<std::unique_ptr<PopulationKernel::Workspace>> workspaces;
  std::vector<std::vector<float>> out(cores, std::vector<float>(network.output_size()));
  std::vector<float> canonical(network.parameter_count);
  for (uint32_t t = 0; t < cores; ++t) {
    FreshGenomes(network).Write({t, 0}, canonical);
    packed.emplace_back(kernel.packed_size());
    kernel.Pack(canonical, packed.back().span());
    workspaces.push_back(kernel.MakeWorkspace());
  }
  return RatePerSecond(cores, options.seconds, [&](uint32_t t) {
    for (const auto& input : inputs)
      kernel.Forward(packed[t].data(), input.data(), *workspaces[t], out[t].data());
    return static_cast<double>(inputs.size());
  });
}

}  // namespace

Result<json> AtariGa(const Options& options) {
  ASSIGN_OR_RETURN(ExperimentConfig config, DesktopConfig(options.game));
  ASSIGN_OR_RETURN(const auto inputs, RecordInputs(options.game, kFrames));
  json all = json::array();
  for (const std::string placement : {"actor", "engine"}) {
    config.fleet.inference = placement;
    ASSIGN_OR_RETURN(EnvironmentSetup setup, SetUpEvolution(config));
    const NetworkDescription network = setup.network();
    const auto frames_per_step = static_cast<double>(setup.environment.frames_per_step);
    ASSIGN_OR_RETURN(const auto evaluator, MakeEvaluator(config, setup));
    const double seconds = 5 * options.seconds;  // tens of episodes
    ASSIGN_OR_RETURN(const double emulation, SteadyRate(*evaluator, network, true, seconds));
    const double evaluations = InferenceRate(network, options, inputs);
    const double inference = evaluations * frames_per_step;
    ASSIGN_OR_RETURN(const double end_to_end, SteadyRate(*evaluator, network, false, seconds));
    options.say(fmt::format("{} in the {}: a whole generation", options.game, placement));
    const auto ga = config.evolution->Make({1, network, *evaluator, setup.episodes});
    ASSIGN_OR_RETURN(const GenerationReport report, ga->Step(nullptr));
    const double generation = static_cast<double>(report.frames) /
                              (report.seconds_population + report.seconds_validation);
    const double cost = 1 / emulation + 1 / inference;
    json row = {{"placement", placement},
                {"game", options.game},
                {"emulation_frames_per_second", emulation},
                {"inference_evaluations_per_second", evaluations},
                {"end_to_end_frames_per_second", end_to_end},
                {"packing", end_to_end * cost},
                {"generation_frames_per_second", generation},
                {"generation_packing", generation * cost},
                {"binds", emulation < inference ? "environment" : "inference"}};
    options.say(
        fmt::format("{} in the {}: emulation {:.0f}, inference {:.0f}, together {:.0f} frames/s "
                    "(packing {:.2f}), a "
                    "generation {:.0f} ({:.2f})",
                    options.game, placement, emulation, inference, end_to_end, end_to_end * cost,
                    generation, generation * cost));
    all.push_back(std::move(row));
  }
  return Report(std::move(all));
}

}  // namespace samara::bench
