// The three schedules of the 2018 neuroevolution program with networks on a device:
//
//   one-at-a-time  each core plays one individual: step, one evaluation on the device, step
//   batched        all environments step, barrier, the device evaluates all, barrier
//   pipelined      no barrier: while the device evaluates some, the others' environments step
//
// As in schedule.cc all play LargeModels of fresh genomes, each with weights of its own. The
// projection multiplies the rate of a core by 48 cores as long as the device is not what limits it,
// and the device's own limit by 4.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "bench/bench.h"
#include "bench/device_population.h"
#include "bench/individuals.h"
#include "core/mutex.h"
#include "core/rng.h"
#include "core/thread.h"
#include "evo/device/device_policies.h"
#include "play/environment_setup.h"

namespace samara::bench {

using nlohmann::json;
using std::chrono::milliseconds;

namespace {

constexpr double kWarmSeconds = 1;
constexpr milliseconds kEventWait{2};
constexpr uint32_t kSlotsPerCore = 8, kSlotsPerCoreOnCpu = 1;
constexpr double kPublishedHours[] = {16, 8, 4};
constexpr double kCores = 48, kDevices = 4;

struct DeviceSchedule {
  const char* name;
  bool one_each;   // a slot and a thread for each core
  bool barrier;    // all slots or none
  uint32_t lanes;  // threads otherwise
};
constexpr DeviceSchedule kDeviceSchedules[] = {
    {"one-at-a-time", true, false, 0}, {"batched", false, true, 1}, {"pipelined", false, false, 3}};

class Game {
 public:
  Game(Fleet& fleet, SlotPolicies& policies, const EpisodeRule& episodes,
       const NetworkDescription& network, const DeviceSchedule& contender)
      : fleet_(fleet),
        policies_(policies),
        episodes_(episodes),
        source_(network),
        contender_(contender) {}

  Status Start(uint32_t threads) {
    policies_.Reset();
    for (uint32_t i = 0; i < threads; ++i) {
      ASSIGN_OR_RETURN(auto worker, policies_.MakeWorker());
      workers_.push_back(std::move(worker));
    }
    for (uint32_t slot = 0; slot < fleet_.slots(); ++slot)
      RETURN_IF_ERROR(Begin(*workers_[0], slot));
    return threads_.Start("schedule-", threads, [this](size_t i) { Serve(*workers_[i]); });
  }
  Status Stop() {
    over_ = true;
    threads_.Join();
    const MutexLock lock(mu_);
    return failure_.ok() && failed_ ? fleet_.status() : failure_;
  }
  uint64_t steps() const { return steps_.load(std::memory_order_relaxed); }

 private:
  Status Begin(SlotPolicies::Worker& worker, uint32_t slot) {
    const uint64_t number = number_.fetch_add(1);
    RETURN_IF_ERROR(policies_.Load(worker, slot, {static_cast<uint32_t>(number), 0}, source_));
    const EpisodeSpec episode =
        episodes_.Make(DeriveKey(11, Purpose::kEpisodePopulation, 1, number, 0), /*test=*/false);
    policies_.StartEpisode(slot, episode, /*record=*/false);
    fleet_.Begin(slot, number, episode);
    return Status::Ok();
  }

  void Check(const Status& status) {
    if (status.ok()) return;
    failed_ = true;
    const MutexLock lock(mu_);
    if (failure_.ok()) failure_ = status;
  }

  void Serve(SlotPolicies::Worker& worker) {
    const size_t batch = policies_.batch();
    std::vector<SlotEvent> events(batch);
    std::vector<uint32_t> slots;
    std::vector<std::span<const std::byte>> observations;
    std::vector<Action> actions(batch);
    while (!over_ && !failed_) {
      const size_t n = fleet_.Wait({events.data(), batch - slots.size()}, kEventWait);
      for (size_t i = 0; i < n; ++i) {
        if (events[i].kind == SlotEvent::Kind::kObservation)
          slots.push_back(events[i].slot);
        else if (events[i].kind == SlotEvent::Kind::kFailed)
          failed_ = true;
        else
          Check(Begin(worker, events[i].slot));
      }
      if (slots.empty() || (contender_.barrier && slots.size() < fleet_.slots())) continue;
      observations.clear();
      for (const uint32_t slot : slots) observations.push_back(fleet_.observation(slot));
      Check(policies_.Decide(worker, slots, observations, actions));
      if (failed_) return;
      for (size_t i = 0; i < slots.size(); ++i) fleet_.Act(slots[i], actions[i]);
      steps_.fetch_add(slots.size(), std::memory_order_relaxed);
      slots.clear();
    }
  }

  Fleet& fleet_;
  SlotPolicies& policies_;
  const EpisodeRule& episodes_;
  const FreshGenomes source_;
  const DeviceSchedule& contender_;
  std::vector<std::unique_ptr<SlotPolicies::Worker>> workers_;
  std::atomic<uint64_t> number_{0}, steps_{0};
  std::atomic<bool> over_{false}, failed_{false};
  Mutex mu_;
  Status failure_ GUARDED_BY(mu_);
  ThreadGroup threads_{[this] { over_ = true; }};
};

Result<json> Run(const DeviceSchedule& contender, const Options& options) {
  ASSIGN_OR_RETURN(auto accelerator, AcceleratorNamed(options.device));
  const uint32_t cores = Cores();
  ExperimentConfig config;
  config.env.game = options.game;
  config.fleet.actors = cores;
  config.fleet.slots = contender.one_each
                           ? cores
                           : cores * (accelerator->gpu() ? kSlotsPerCore : kSlotsPerCoreOnCpu);
  ASSIGN_OR_RETURN(EnvironmentSetup setup, SetUpEvolution(config));
  const NetworkDescription network = setup.network();
  const std::string device = accelerator->name();
  const uint32_t slots = setup.fleet->slots();
  const uint32_t batch = contender.one_each ? 1 : contender.barrier ? slots : (slots + 1) / 2;
  ASSIGN_OR_RETURN(const auto policies, MakeDevicePolicies(std::move(accelerator),
                                                           std::move(setup.model), slots, batch));
  Game game(*setup.fleet, *policies, setup.episodes, network, contender);
  RETURN_IF_ERROR(game.Start(contender.one_each ? cores : contender.lanes));
  std::this_thread::sleep_for(std::chrono::duration<double>(kWarmSeconds));
  const SteadyTime start = Now();
  const uint64_t steps = game.steps();
  const double environment = setup.fleet->counters().step_seconds;
  const double on_device = policies->device_seconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(options.seconds));
  const double seconds = SecondsSince(start);
  const double rate = static_cast<double>(game.steps() - steps) / seconds *
                      static_cast<double>(setup.environment.frames_per_step);
  const double cpu_share =
      std::min(1.0, (setup.fleet->counters().step_seconds - environment) / seconds / cores);
  const double device_share = std::min(1.0, (policies->device_seconds() - on_device) / seconds);
  RETURN_IF_ERROR(game.Stop());
  return json{{"schedule", contender.name},
              {"device", device},
              {"cores", cores},
              {"slots", slots},
              {"frames_per_second", rate},
              {"hours_per_billion_frames", 1e9 / rate / 3600},
              {"environment_share", cpu_share},
              {"cpu_idle_share", 1 - cpu_share},
              {"device_share_at_most", device_share},
              {"device_idle_share_at_least", 1 - device_share}};
}

// Hours for a billion frames with 48 cores and 4 devices: cores add up until the devices are busy.
double Projected(const json& row) {
  const auto rate = row["frames_per_second"].get<double>();
  const double of_cores = rate / row["cores"].get<double>() * kCores;
  const double of_devices =
      rate / std::max(1e-6, row["device_share_at_most"].get<double>()) * kDevices;
  return 1e9 / std::min(of_cores, of_devices) / 3600;
}

}  // namespace

Result<json> SchedulesOnDevice(const Options& options) {
  json rows = json::array();
  for (size_t i = 0; i < std::size(kDeviceSchedules); ++i) {
    ASSIGN_OR_RETURN(json row, Run(kDeviceSchedules[i], options));
    row["projected_hours_48_cores_4_devices"] = Projected(row);
    row["published_hours_2018"] = kPublishedHours[i];
    options.say(
        fmt::format("{} on {}: {:.0f} frames/s, emulators busy {:.2f}, device at most {:.2f}",
                    kDeviceSchedules[i].name, row["device"].get<std::string>(),
                    row["frames_per_second"].get<double>(), row["environment_share"].get<double>(),
                    row["device_share_at_most"].get<double>()));
    rows.push_back(std::move(row));
  }
  json headline = rows.back();
  return Report(std::move(rows), std::move(headline));
}

}  // namespace samara::bench
