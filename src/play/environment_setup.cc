#include "config/experiment.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/cpu.h"
#include "core/venv.h"
#include "env/atari_preset.h"
#include "env/registry.h"

namespace samara {
namespace {

uint32_t OrAuto(int64_t value, uint32_t automatic) {
  return value > 0 ? static_cast<uint32_t>(value) : automatic;
}

// This engine's share of the machine.
uint32_t OwnCores(const FleetConfig& fleet) {
  return std::max(1U, Cores() / static_cast<uint32_t>(fleet.engines));
}

bool IsNative(const std::string& id) {
  const auto ids = NativeEnvironmentIds();
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// The prefixes that are adapters of our own and no module: PREFIXES in
// python/samara/environment.py.
constexpr std::string_view kDmLab = "dmlab:", kAdapters[] = {"envpool:", kDmLab};

bool HasAdapter(std::string_view id) {
  return std::any_of(std::begin(kAdapters), std::end(kAdapters),
                     [id](std::string_view prefix) { return id.starts_with(prefix); });
}

bool NamesModule(std::string_view id) { return id.find(':') != id.npos && !HasAdapter(id); }

// A number or a boolean: nothing that could be a path.
bool IsPlainOption(std::string_view option) {
  const size_t equals = option.find('=');
  if (equals == option.npos) return false;
  const auto value = nlohmann::json::parse(option.substr(equals + 1), nullptr, false);
  return value.is_number() || value.is_boolean();
}

Status CheckTrusted(const EnvironmentConfig& env) {
  if (env.untrusted.empty()) return Status::Ok();
  return {Code::kNotPermitted,
          env.untrusted + ": expected --trust if you trust who made it, or an env.id=... of yours"};
}

// What an actor process is asked to build.
std::string ActorEnvironment(const EnvironmentConfig& env, const AtariPreset* preset) {
  return preset != nullptr ? AtariEnvironmentJson(*preset, env.game)
                           : PythonEnvironmentJson(env.id);
}

Result<std::unique_ptr<Fleet>> MakeFleet(const ExperimentConfig& config, const AtariPreset* preset,
                                         bool render) {
  ActorFleetOptions options;
  ASSIGN_OR_RETURN(const Path venv, FindVenv());
  options.python = (venv / "bin" / "python").string();
  options.environment_json = ActorEnvironment(config.env, preset);
  options.render = render;
  options.actors = OrAuto(config.fleet.actors, OwnCores(config.fleet));
  options.slots = std::max(options.actors, OrAuto(config.fleet.slots, 2 * options.actors));
  options.step_timeout = config.fleet.step_timeout;
  return MakeActorFleet(options);
}

struct Input {
  int64_t height = 1, width = 1, channels = 0;
  InputRule rule;
};

// Of evolution: gray images are stacked (the Atari preset says how, others repeat the first frame),
// colour images and vectors go in as they are. Agents have rl/acting.h's InputLayout.
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
                            bool has_fire) {
  EpisodeRule rule;
  rule.frames_max = config.env.frames_max;
  rule.frames_max_test = config.env.test_frames_max;
  if (preset == nullptr) return rule;
  rule.noops = [preset = *preset, has_fire](uint64_t key) {
    return DrawNoops(preset, key, has_fire);
  };
  return rule;
}

Status FindPreset(const ExperimentConfig& config, Stage& stage) {
  if (!config.env.id.empty()) return Status::Ok();
  ASSIGN_OR_RETURN(stage.preset, FindAtariPreset(config.env.preset));
  stage.header = stage.preset->ToText();
  return Status::Ok();
}

Status ChooseStack(const ExperimentConfig& config, Stage& stage) {
  const int64_t wanted = config.env.stack;
  if (stage.preset) {
    stage.stack = stage.preset->stack;
    if (wanted != 0 && wanted != stage.stack->depth)
      return {Code::kConfig, fmt::format("env.stack={}: env.preset={} stacks {}; expected that, or "
                                         "0",
                                         wanted, config.env.preset, stage.stack->depth)};
  } else if (wanted != 0) {
    stage.stack = FrameStackRule{.depth = wanted};
  }
  return Status::Ok();
}

bool HasFire(const EnvironmentSpec& spec) {
  return std::find(spec.action_names.begin(), spec.action_names.end(), "FIRE") !=
         spec.action_names.end();
}

}  // namespace

bool ChoosesCode(std::string_view id) {
  if (NamesModule(id)) return true;
  if (!HasAdapter(id)) return false;
  const size_t question = std::min(id.find('?'), id.size());
  // a level of DeepMind Lab may be the path of a program in Lua
  if (id.starts_with(kDmLab) && id.substr(0, question).find_first_of("/\\.") != id.npos)
    return true;
  std::string_view options = id.substr(std::min(question + 1, id.size()));
  while (!options.empty()) {
    const size_t end = std::min(options.find('&'), options.size());
    if (!IsPlainOption(options.substr(0, end))) return true;
    options.remove_prefix(std::min(end + 1, options.size()));
  }
  return false;
}

std::string PythonEnvironmentJson(const std::string& id) {
  if (id == "dummy") return R"({"kind": "dummy"})";
  nlohmann::json environment = {{"kind", "gym"}, {"id", id}};
  std::error_code gone;
  if (NamesModule(id)) environment["path"] = std::filesystem::current_path(gone).string();
  return environment.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool ExperimentConfig::Learns() const { return run.algorithm == "vtrace"; }

void ExperimentConfig::ChooseAlgorithm(std::string_view toml,
                                       const std::vector<std::string>& overrides) {
  constexpr std::string_view kKey = "run.algorithm";
  if (std::string text = TextIn(toml, kKey); !text.empty()) run.algorithm = text;
  for (std::string_view word : overrides) {
    if (!word.starts_with(kKey) || !word.substr(kKey.size()).starts_with('=')) continue;
    word.remove_prefix(kKey.size() + 1);
    if (word.size() > 1 && word.front() == '"') word = word.substr(1, word.size() - 2);
    run.algorithm = word;
  }
}

std::string ExperimentConfig::AlgorithmsOfKind() const {
  return Learns() ? "vtrace" : "deep-ga or random-search";
}

ConfigTable ExperimentConfig::Table() {
  ConfigTable table = OwnTable();
  ExperimentConfig other;
  other.run.algorithm = Learns() ? "deep-ga" : "vtrace";
  const ConfigTable others = other.OwnTable();
  for (const ConfigField& field : others.fields()) {
    if (table.Find(field.key) == nullptr)
      table.AddElsewhere(field.key, fmt::format("run.algorithm={}; this run is {}",
                                                other.AlgorithmsOfKind(), run.algorithm));
  }
  return table;
}

ConfigTable ExperimentConfig::OwnTable() {
  ConfigTable table;
  const auto change = OnResume::kMayChange;
  table.Add("run.name", &run.name, {}, "name of the run folder", change);
  table.Add("run.algorithm", &run.algorithm, {"deep-ga", "random-search", "vtrace"},
            "what is run; `samara list algorithms`");
  table.Add("run.seed", &run.seed, {0, 9e18}, "", "seed of every random draw");
  table.Add("run.minutes", &run.minutes, {0, 1e7}, "min",
            "budget of running time, checked between generations; 0 = none", OnResume::kMayGrow);
  table.Add("run.checkpoint_seconds", &run.checkpoint_seconds, {1, 1e6}, "s",
            "between full checkpoints", change);
  table.Add("run.disk_retry_seconds", &run.disk_retry_seconds, {0, 1e6}, "s",
            "a full disk is waited for before the run gives up", change);
  table.Add("run.random_episodes", &run.random_episodes, {0, 100'000}, "episodes",
            "of the random policy, for comparison", change);
  table.Add("run.video", &run.video, "record the elite, or the agent, at the end", change);
  table.Add("env.id", &env.id, {},
            "empty: the Atari game; else a native id or any Gymnasium id (module:Name-v0)");
  table.Add("env.game", &env.game, {}, "Atari game");
  table.Add("env.preset", &env.preset, {}, "Atari preset; `samara list envs`");
  table.Add("env.frames_max", &env.frames_max, {0, 1e12}, "frames",
            "cap of an episode; 0 = the preset's");
  table.Add("env.test_frames_max", &env.test_frames_max, {0, 1e12}, "frames",
            "cap of test episodes; 0 = the preset's");
  table.Add("fleet.actors", &fleet.actors, {0, 4096}, "processes",
            "Python simulators; 0 = one per core", change);
  table.Add("fleet.threads", &fleet.threads, {0, 4096}, "threads",
            "inference or rollouts; 0 = one per core", change);
  table.Add("fleet.step_timeout", &fleet.step_timeout, {0.1, 86400}, "s",
            "until a silent actor counts as hung", change);
  if (Learns()) {
    table.Add(
        "env.stack", &env.stack, {0, 64}, "observations",
        "images that the network sees together, along their channels; 0 = the Atari preset's, "
        "4 of gray images, 1 of images with channels",
        OnResume::kMustMatchAdded);
    table.Add("fleet.remote_slots", &fleet.remote_slots, {0, 65'536}, "slots",
              "of a run that listens: for actors on other machines; 0 = all", change);
    Bind(table, learning);
    return table;
  }
  table.Add("fleet.slots", &fleet.slots, {0, 65536}, "slots",
            "in total; 0 = two per actor or thread", change);
  table.Add(
      "fleet.inference", &fleet.inference, {"actor", "engine"},
      "who runs the networks of actor processes: each actor beside its simulator, or the engine",
      change);
  table.Add("fleet.native", &fleet.native, {"direct", "slots"},
            "native environments: whole episodes on threads, or slots", change);
  table.Add("network.name", &network.name, {}, "`samara list networks`");
  table.Add(
      "network.storage", &network.storage, {"float32", "bf16", "int8"},
      "of the weights: bf16 or int8 for less of the memory traffic that bounds large networks");
  table.Add("run.final_test_episodes", &run.final_test_episodes, {0, 100'000}, "episodes",
            "of the elite at the end; 0 = ga.test_episodes", change);
  Bind(table, ga);
  return table;
}

std::vector<std::string> Settle(ExperimentConfig& config) {
  std::vector<std::string> warnings;
  const OptimizerConfig& optimizer = config.learning.optimizer;
  const double frames = config.learning.learn.frames;
  if (config.Learns()) {
    if (optimizer.schedule == "linear" && frames > optimizer.schedule_frames)
      warnings.push_back(
          fmt::format("learn.frames={:.15g} goes beyond optimizer.schedule_frames={:.15g}: the "
                      "learning rate is 0 from there on; raise optimizer.schedule_frames too",
                      frames, optimizer.schedule_frames));
    return warnings;
  }
  GaConfig& ga = config.ga;
  const std::string given = fmt::format("ga.parents={} and ga.validation_candidates={}", ga.parents,
                                        ga.validation_candidates);
  if (Clamp(ga))
    warnings.push_back(fmt::format("{} are clamped to ga.population={}", given, ga.population));
  if (ga.mutation_schedule != "constant" && ga.mutation_power_end == 0 &&
      ga.frames > ga.mutation_schedule_frames)
    warnings.push_back(fmt::format(
        "ga.frames={} goes beyond ga.mutation_schedule_frames={}: the mutation power is 0 "
        "from there on; raise ga.mutation_schedule_frames too, or ga.mutation_power_end",
        ga.frames, ga.mutation_schedule_frames));
  if (ga.generations == 0 && ga.frames == 0 && config.run.minutes == 0)
    warnings.emplace_back(
        "no budget: the run goes on until it is stopped; set ga.generations, ga.frames or "
        "run.minutes");
  return warnings;
}

Result<Stage> MakeStage(const ExperimentConfig& config, bool render) {
  Stage stage;
  RETURN_IF_ERROR(CheckTrusted(config.env));
  RETURN_IF_ERROR(FindPreset(config, stage));
  const AtariPreset* atari = stage.preset ? &*stage.preset : nullptr;

  // 1 who steps the environments
  if (IsNative(config.env.id)) {
    ASSIGN_OR_RETURN(stage.factory, NativeEnvironment(config.env.id, render));
    ASSIGN_OR_RETURN(const auto probe, stage.factory());
    stage.environment = probe->spec();
  } else {
    ASSIGN_OR_RETURN(stage.fleet, MakeFleet(config, atari, render));
    stage.environment = stage.fleet->spec();
  }

  // 2 the network that fits them
  const Input input = MakeInput(stage.environment, atari);
  ASSIGN_OR_RETURN(NetworkDescription network,
                   MakeNetwork(config.network.name, input.height, input.width, input.channels,
                               stage.environment.action.outputs()));
  ASSIGN_OR_RETURN(network.storage, ParseStorage(config.network.storage));
  stage.model =
      std::make_unique<PolicyModel>(std::move(network), input.rule, stage.environment.action);

  // 3 how episodes are made
  stage.episodes = MakeEpisodeRule(config, atari, HasFire(stage.environment));
  return stage;
}

namespace {

// Threads or actor processes that step `slots` slots of this machine.
uint32_t LocalWorkers(const ExperimentConfig& config, uint32_t slots) {
  return IsNative(config.env.id)
             ? OrAuto(config.fleet.threads, OwnCores(config.fleet))
             : std::min(slots, OrAuto(config.fleet.actors, OwnCores(config.fleet)));
}

// Slots that this machine steps.
Result<std::unique_ptr<Fleet>> MakeLocalFleet(const ExperimentConfig& config,
                                              const AtariPreset* atari, uint32_t slots,
                                              bool render) {
  if (IsNative(config.env.id)) {
    ASSIGN_OR_RETURN(const EnvironmentFactory factory, NativeEnvironment(config.env.id, render));
    return MakeThreadFleet(factory, slots, LocalWorkers(config, slots));
  }
  ExperimentConfig with_slots = config;
  with_slots.fleet.slots = slots;
  with_slots.fleet.actors = LocalWorkers(config, slots);
  return MakeFleet(with_slots, atari, render);
}

// What to type where actors are to run; files as they are called there.
std::string ActorCommand(const ExperimentConfig& config, const std::string& address,
                         const RemoteFleetOptions& remote) {
  const EnvironmentConfig& env = config.env;
  const bool plain = env.id.find_first_of("?&*") == std::string::npos;
  std::string command = "samara actor --connect " + address + " --env ";
  command += env.id.empty() ? "atari/" + env.game + " --preset " + env.preset
             : plain        ? env.id
                            : "'" + env.id + "'";
  if (!remote.token_files.empty()) command += " --token-file TOKEN";
  if (!remote.certificate.empty()) command += " --ca ca.pem";
  if (!remote.client_ca.empty()) command += " --certificate actor.pem --key actor.key";
  return command;
}

}  // namespace

Result<Stage> MakeAgentStage(const ExperimentConfig& config, uint32_t slots, bool render,
                             const RemoteFleetOptions& remote) {
  Stage stage;
  RETURN_IF_ERROR(CheckTrusted(config.env));
  RETURN_IF_ERROR(FindPreset(config, stage));
  RETURN_IF_ERROR(ChooseStack(config, stage));
  const AtariPreset* atari = stage.preset ? &*stage.preset : nullptr;
  const bool listens = !remote.address.empty();
  const uint32_t elsewhere = listens ? OrAuto(config.fleet.remote_slots, slots) : 0;
  if (elsewhere > slots)
    return Status(Code::kConfig,
                  fmt::format("fleet.remote_slots={}: expected at most learn.environments={}",
                              elsewhere, slots));
  // with every slot elsewhere one is made here all the same: it says what actors must play
  ASSIGN_OR_RETURN(stage.fleet,
                   MakeLocalFleet(config, atari, std::max(1U, slots - elsewhere), render));
  stage.environment = stage.fleet->spec();
  if (!listens) stage.workers = LocalWorkers(config, slots);
  if (listens) {
    RemoteFleetOptions options = remote;
    options.slots = elsewhere;
    options.spec = stage.environment;
    options.step_timeout = std::max(options.step_timeout, config.fleet.step_timeout);
    ASSIGN_OR_RETURN(RemoteFleet there, MakeRemoteFleet(options));
    stage.listens = there.address;
    stage.actor_command = ActorCommand(config, there.address, remote);
    if (elsewhere == slots) {
      stage.fleet = std::move(there.fleet);
    } else {
      std::vector<std::unique_ptr<Fleet>> both;
      both.push_back(std::move(stage.fleet));
      both.push_back(std::move(there.fleet));
      ASSIGN_OR_RETURN(stage.fleet, MakeFleetUnion(std::move(both)));
    }
  }
  stage.episodes = MakeEpisodeRule(config, atari, HasFire(stage.environment));
  return stage;
}

Result<std::unique_ptr<Evaluator>> MakeEvaluator(const ExperimentConfig& config, Stage& stage) {
  const uint32_t threads = OrAuto(config.fleet.threads, OwnCores(config.fleet));
  if (stage.factory && config.fleet.native == "direct") {
    return MakeDirectEvaluator(stage.factory, std::move(stage.model), threads);
  }
  if (stage.factory) {
    ASSIGN_OR_RETURN(
        stage.fleet,
        MakeThreadFleet(stage.factory, OrAuto(config.fleet.slots, 2 * threads), threads));
  }
  if (!stage.factory && config.fleet.inference == "actor") {
    return MakeEpisodeEvaluator(std::move(stage.fleet), std::move(stage.model));
  }
  return MakeSlotEvaluator(std::move(stage.fleet), std::move(stage.model), threads);
}

}  // namespace samara
