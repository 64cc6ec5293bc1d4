#include "play/environment_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/cpu.h"
#include "core/device.h"
#include "core/log.h"
#include "core/shell.h"
#include "core/venv.h"
#include "env/registry.h"
#include "evo/device/device_policies.h"
#include "evo/evaluate/reference.h"
#include "fleet/named_environment.h"
#include "fleet/policy_segment.h"

namespace samara {
namespace {

uint32_t OrAuto(int64_t value, uint32_t automatic) {
  return value > 0 ? static_cast<uint32_t>(value) : automatic;
}

// This learner process's share of the machine.
uint32_t OwnCores(const FleetConfig& fleet) {
  return std::max(1U, Cores() / static_cast<uint32_t>(fleet.engines));
}

Status CheckTrusted(const EnvironmentConfig& env) {
  if (env.untrusted.empty()) return Status::Ok();
  return {Code::kNotPermitted,
          env.untrusted + ": expected --trust if you trust who made it, or an env.id=... of yours"};
}

// Configuration of an actor's environment, as JSON.
std::string ActorEnvironment(const EnvironmentConfig& env, const AtariPreset* preset) {
  return preset != nullptr ? AtariEnvironmentJson(*preset, env.game)
                           : PythonEnvironmentJson(env.id, GymOptionsOf(env));
}

// A slot that acts and one that waits; on a GPU batches are worth more of them.
uint32_t SlotsPerActor(std::optional<int> gpu) { return gpu ? 8 : 2; }
constexpr uint32_t kLanes = 3;  // batches on a GPU at a time

Result<std::unique_ptr<Fleet>> MakeFleet(const ExperimentConfig& config, const AtariPreset* preset,
                                         bool render, std::optional<int> gpu = std::nullopt) {
  ActorFleetOptions options;
  ASSIGN_OR_RETURN(const Path venv, FindVenv());
  options.python = (venv / "bin" / "python").string();
  options.environment_json = ActorEnvironment(config.env, preset);
  options.render = render;
  options.actors = OrAuto(config.fleet.actors, OwnCores(config.fleet));
  options.slots =
      std::max(options.actors, OrAuto(config.fleet.slots, SlotsPerActor(gpu) * options.actors));
  options.step_timeout = config.fleet.step_timeout;
  return MakeActorFleet(options);
}

struct Input {
  int64_t height = 1, width = 1, channels = 0;
  InputRule rule;
};

// Input of an evolved network: gray images are stacked (the Atari preset says how, others repeat
// the first frame), colour images and vectors go in as they are. Agents have
// rl/learner/policy_versions.h's InputLayout.
Input MakeInput(const EnvironmentSpec& spec, const AtariPreset* preset) {
  Input input;
  input.rule.dtype = spec.observation.dtype;
  const auto& shape = spec.observation.shape;
  if (shape.size() == 2) {
    input.rule.stacked = true;
    if (preset != nullptr) input.rule.stack = preset->stack;
    input.height = shape[0], input.width = shape[1], input.channels = input.rule.stack.depth;
  } else if (shape.size() == 3) {
    input.height = shape[0], input.width = shape[1], input.channels = shape[2];
  } else {
    input.channels = static_cast<int64_t>(spec.observation.elements());
  }
  return input;
}

EpisodeRule MakeEpisodeRule(const ExperimentConfig& config, const AtariPreset* preset,
                            const EnvironmentSpec& environment) {
  EpisodeRule rule;
  rule.frames_max = config.env.frames_max;
  rule.frames_max_test = config.env.test_frames_max;
  if (preset == nullptr) {
    // tests that nothing else would end
    if (rule.frames_max_test == 0 && environment.steps_max == 0)
      rule.frames_max_test = rule.frames_max;
    return rule;
  }
  rule.noops = [preset = *preset, has_fire = HasFire(environment)](uint64_t key) {
    return DrawNoops(preset, key, has_fire);
  };
  return rule;
}

Status FindPreset(const ExperimentConfig& config, EnvironmentSetup& setup) {
  RETURN_IF_ERROR(CheckGymOptions(config.env.id, GymOptionsOf(config.env)));
  if (!config.env.id.empty()) return Status::Ok();
  ASSIGN_OR_RETURN(setup.preset, FindAtariPreset(config.env.preset));
  setup.header = setup.preset->ToText();
  return Status::Ok();
}

Status ChooseStack(const ExperimentConfig& config, EnvironmentSetup& setup) {
  const int64_t wanted = config.env.stack;
  if (setup.preset) {
    setup.stack = setup.preset->stack;
    if (wanted != 0 && wanted != setup.stack->depth)
      return {Code::kConfig, fmt::format("env.stack={}: env.preset={} stacks {}; expected that, or "
                                         "0",
                                         wanted, config.env.preset, setup.stack->depth)};
  } else if (wanted != 0) {
    setup.stack = FrameStackRule{.depth = wanted};
  }
  return Status::Ok();
}

// kConfig where the environment has no continuous actions between bounds.
Status ChooseBins(int64_t bins, EnvironmentSpec& environment) {
  if (bins == 0) return Status::Ok();
  if (bins == 1 || environment.action.discrete || environment.action.raw)
    return {Code::kConfig,
            fmt::format("network.action_bins={}: expected 0, or 2 or more for an environment of "
                        "continuous actions between bounds; those of {} are {}",
                        bins, environment.id,
                        environment.action.discrete ? "discrete"
                        : environment.action.raw    ? "unbounded"
                                                    : "continuous")};
  environment.action.bins = bins;
  return Status::Ok();
}

// Bound of the bytes that an episode records; 0 when none does.
Result<size_t> RecordingBytes(const EnvironmentSetup& setup) {
  const size_t row = RowBytes(setup.episodes.record, setup.environment);
  if (row == 0) return size_t{0};
  const EnvironmentSpec& spec = setup.environment;
  const int64_t frames = setup.episodes.frames_max;
  const int64_t of_frames = (frames + spec.frames_per_step - 1) / spec.frames_per_step;
  const int64_t steps = frames > 0 && spec.steps_max > 0 ? std::min(of_frames, spec.steps_max)
                        : frames > 0                     ? of_frames
                                                         : spec.steps_max;
  const auto rows = static_cast<int64_t>(kPolicyRecordingBytesMax / row);
  if (steps > 0 && steps <= rows) return static_cast<size_t>(steps) * row;
  return Status(Code::kConfig,
                fmt::format("env.frames_max={}: {} records up to {} steps of an episode; expected "
                            "at least 1 and at most {} frames",
                            frames, spec.id, rows, rows * spec.frames_per_step));
}

// Whether actor processes play whole episodes.
bool PlaysInActors(const ExperimentConfig& config, const EnvironmentSetup& setup) {
  return !setup.factory && !setup.gpu && config.fleet.inference == "actor";
}

}  // namespace

Result<EnvironmentSetup> SetUpEvolution(const ExperimentConfig& config, bool render,
                                        std::optional<int> gpu) {
  EnvironmentSetup setup;
  setup.gpu = gpu;
  RETURN_IF_ERROR(CheckTrusted(config.env));
  RETURN_IF_ERROR(FindPreset(config, setup));
  const AtariPreset* atari = setup.preset ? &*setup.preset : nullptr;
  if (atari != nullptr && atari->life_loss == LifeLoss::kEndsEpisode)
    return Status(
        Code::kConfig,
        fmt::format("env.preset={}: an episode after a lost life goes on with the game of "
                    "the one before, so that a fitness would depend on who played there "
                    "before; expected another preset",
                    config.env.preset));

  // 1 who steps the environments
  if (IsNativeEnvironment(config.env.id)) {
    ASSIGN_OR_RETURN(setup.factory, NativeEnvironment(config.env.id, render));
    ASSIGN_OR_RETURN(const auto probe, setup.factory());
    setup.environment = probe->spec();
  } else {
    ASSIGN_OR_RETURN(setup.fleet, MakeFleet(config, atari, render, gpu));
    setup.environment = setup.fleet->spec();
  }

  RETURN_IF_ERROR(ChooseBins(config.network.action_bins, setup.environment));

  // 2 the network that fits them
  const Input input = MakeInput(setup.environment, atari);
  ASSIGN_OR_RETURN(NetworkDescription network,
                   MakeNetwork(config.network.text(), input.height, input.width, input.channels,
                               setup.environment.action.outputs()));
  ASSIGN_OR_RETURN(const Storage storage, ParseStorage(config.network.storage));
  RETURN_IF_ERROR(SetStorage(storage, network));
  setup.model =
      std::make_unique<PolicyModel>(std::move(network), input.rule, setup.environment.action);

  // 3 how episodes are made
  if (gpu) {
    const Status supported = SupportsDevice(*setup.model);
    if (!supported.ok() && config.run.device != "auto") return supported;
    if (!supported.ok()) {
      LogInfo("run.device=auto: networks are computed on the CPU: " + supported.message());
      setup.gpu.reset();
      if (setup.fleet) {  // a GPU has more slots
        setup.fleet.reset();
        ASSIGN_OR_RETURN(setup.fleet, MakeFleet(config, atari, render));
      }
    }
  }
  setup.episodes = MakeEpisodeRule(config, atari, setup.environment);
  ASSIGN_OR_RETURN(setup.episodes.record,
                   config.evolution->Records(setup.environment, setup.network()));
  if (PlaysInActors(config, setup)) RETURN_IF_ERROR(RecordingBytes(setup).status());
  return setup;
}

namespace {

// Threads or actor processes that step `slots` slots of this machine.
uint32_t LocalWorkers(const ExperimentConfig& config, uint32_t slots) {
  return IsNativeEnvironment(config.env.id)
             ? OrAuto(config.fleet.threads, OwnCores(config.fleet))
             : std::min(slots, OrAuto(config.fleet.actors, OwnCores(config.fleet)));
}

// Slots that this machine steps.
Result<std::unique_ptr<Fleet>> MakeLocalFleet(const ExperimentConfig& config,
                                              const AtariPreset* atari, uint32_t slots,
                                              bool render) {
  if (IsNativeEnvironment(config.env.id)) {
    ASSIGN_OR_RETURN(const EnvironmentFactory factory, NativeEnvironment(config.env.id, render));
    return MakeThreadFleet(factory, slots, LocalWorkers(config, slots));
  }
  ExperimentConfig with_slots = config;
  with_slots.fleet.slots = slots;
  with_slots.fleet.actors = LocalWorkers(config, slots);
  return MakeFleet(with_slots, atari, render);
}

// Command line of an actor on another machine; files as they are called there.
std::string ActorCommand(const ExperimentConfig& config, const std::string& address,
                         const RemoteFleetOptions& remote) {
  const EnvironmentConfig& env = config.env;
  const auto option = [](const char* key, const std::string& value, const char* none) {
    return value == none ? std::string() : fmt::format(" {}={}", key, ShellWord(value));
  };
  std::string command = "samara actor --connect " + address + " --env ";
  command += env.id.empty() ? "atari/" + env.game + " --preset " + env.preset : ShellWord(env.id);
  command += option("env.kwargs", env.kwargs, "{}") + option("env.wrappers", env.wrappers, "[]");
  if (!remote.token_files.empty()) command += " --token-file TOKEN";
  if (!remote.certificate.empty()) command += " --ca ca.pem";
  if (!remote.client_ca.empty()) command += " --certificate actor.pem --key actor.key";
  return command;
}

}  // namespace

Result<EnvironmentSetup> SetUpLearning(const ExperimentConfig& config, uint32_t slots, bool render,
                                       const RemoteFleetOptions& remote) {
  EnvironmentSetup setup;
  RETURN_IF_ERROR(CheckTrusted(config.env));
  RETURN_IF_ERROR(FindPreset(config, setup));
  RETURN_IF_ERROR(ChooseStack(config, setup));
  const AtariPreset* atari = setup.preset ? &*setup.preset : nullptr;
  const bool listens = !remote.address.empty();
  const uint32_t elsewhere = listens ? OrAuto(config.fleet.remote_slots, slots) : 0;
  if (elsewhere > slots)
    return Status(Code::kConfig,
                  fmt::format("fleet.remote_slots={}: expected at most learn.environments={}",
                              elsewhere, slots));
  // with every slot elsewhere one is made here all the same: it says what actors must play
  ASSIGN_OR_RETURN(setup.fleet,
                   MakeLocalFleet(config, atari, std::max(1U, slots - elsewhere), render));
  setup.environment = setup.fleet->spec();
  if (!listens) setup.workers = LocalWorkers(config, slots);
  if (listens) {
    RemoteFleetOptions options = remote;
    options.slots = elsewhere;
    options.spec = setup.environment;
    options.step_timeout = std::max(options.step_timeout, config.fleet.step_timeout);
    ASSIGN_OR_RETURN(RemoteFleet there, MakeRemoteFleet(options));
    setup.listens = there.address;
    setup.actor_command = ActorCommand(config, there.address, remote);
    if (elsewhere == slots) {
      setup.fleet = std::move(there.fleet);
    } else {
      std::vector<std::unique_ptr<Fleet>> both;
      both.push_back(std::move(setup.fleet));
      both.push_back(std::move(there.fleet));
      ASSIGN_OR_RETURN(setup.fleet, MakeFleetUnion(std::move(both)));
    }
  }
  setup.episodes = MakeEpisodeRule(config, atari, setup.environment);
  return setup;
}

Result<std::vector<float>> CollectReference(const EnvironmentSetup& setup, uint64_t seed) {
  if (!setup.factory) return CollectReference(*setup.model, setup.episodes, seed, *setup.fleet);
  ASSIGN_OR_RETURN(const auto fleet, MakeThreadFleet(setup.factory, 1, 0));
  return CollectReference(*setup.model, setup.episodes, seed, *fleet);
}

Result<std::optional<int>> PopulationGpu(const ExperimentConfig& config, const RankPlace& mine) {
  ASSIGN_OR_RETURN(const DeviceChoice choice, ParseDevice(config.run.device));
  using Kind = DeviceChoice::Kind;
  const bool any = choice.kind == Kind::kAuto;
  const bool states = config.evolution->LooksAtStates();
  if (any && (IsNativeEnvironment(config.env.id) || states)) return std::optional<int>();
  if (choice.kind == Kind::kCuda && states)
    return Status(Code::kConfig, fmt::format("run.device={}: safe mutations look at states, which "
                                             "the CPU alone records; expected cpu",
                                             config.run.device));
  if (choice.ordinals.size() > static_cast<size_t>(mine.ranks))
    return Status(Code::kConfig,
                  fmt::format("run.device={}: a rank's population is evaluated on one "
                              "GPU; expected as many ranks (samara launch)",
                              config.run.device));
  ASSIGN_OR_RETURN(const std::vector<Device> devices, Accelerator::Choose(choice, mine.local_rank));
  const Device& device = devices[static_cast<size_t>(mine.rank) % devices.size()];
  if (!device.cuda) return std::optional<int>();
  if (const auto gpu = Accelerator::Gpu(device.ordinal); !gpu.ok()) {
    if (!any) return gpu.status();
    LogWarning("run.device=auto: networks are computed on the CPU: " + gpu.status().message());
    return std::optional<int>();
  }
  return std::optional(device.ordinal);
}

namespace {

Result<std::unique_ptr<Evaluator>> MakeGpuEvaluator(EnvironmentSetup& setup) {
  const uint32_t slots = setup.fleet->slots();
  ASSIGN_OR_RETURN(auto gpu, Accelerator::Gpu(*setup.gpu));
  ASSIGN_OR_RETURN(auto policies, MakeDevicePolicies(std::move(gpu), std::move(setup.model), slots,
                                                     (slots + 1) / 2));
  return MakeSlotEvaluator(std::move(setup.fleet), std::move(policies), kLanes);
}

}  // namespace

Result<std::unique_ptr<Evaluator>> MakeEvaluator(const ExperimentConfig& config,
                                                 EnvironmentSetup& setup) {
  const uint32_t threads = OrAuto(config.fleet.threads, OwnCores(config.fleet));
  if (!setup.gpu && setup.factory && config.fleet.native == "direct") {
    return MakeDirectEvaluator(setup.factory, std::move(setup.model), threads);
  }
  if (setup.factory) {
    ASSIGN_OR_RETURN(
        setup.fleet,
        MakeThreadFleet(setup.factory,
                        OrAuto(config.fleet.slots, SlotsPerActor(setup.gpu) * threads), threads));
  }
  if (setup.gpu) return MakeGpuEvaluator(setup);
  if (PlaysInActors(config, setup)) {
    ASSIGN_OR_RETURN(const size_t recording_bytes, RecordingBytes(setup));
    return MakeEpisodeEvaluator(std::move(setup.fleet), std::move(setup.model), recording_bytes);
  }
  return MakeSlotEvaluator(std::move(setup.fleet), std::move(setup.model), threads);
}

}  // namespace samara
