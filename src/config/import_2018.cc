#include "config/import_2018.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "config/experiment.h"
#include "core/log.h"
#include "core/parse_number.h"
#include "core/suggestion.h"

namespace samara {
namespace {

using Json = nlohmann::json;

constexpr int64_t kFramesPerStep = 4;          // of both programs' Atari environments
constexpr int64_t kAtariTestFrames = 400'000;  // the accelerated program's limit of a test episode

std::string Text(const Json& value) {
  return Shown(value.dump(-1, ' ', true, Json::error_handler_t::replace));
}

// Outcome of reading one file; the first failure stays.
struct Import {
  Status failure;
  std::vector<std::string> warnings;
  std::vector<std::pair<std::string, std::string>> keys;  // "ga.population" -> "1000"

  void Fail(const std::string& what) {
    if (failure.ok()) failure = {Code::kConfig, what};
  }
  void Warn(std::string line) { warnings.push_back(std::move(line)); }
  void Set(const std::string& key, const std::string& text) {
    keys.emplace_back(key, '"' + text + '"');
  }
  void SetNumber(const std::string& key, double value) {
    const bool whole = value == std::floor(value) && std::abs(value) < 1e15;
    keys.emplace_back(
        key, whole ? fmt::format("{}", static_cast<int64_t>(value)) : fmt::format("{}", value));
  }
};

// The members of one JSON object. Each is read once; members that are not read are unknown.
class Members {
 public:
  Members(Import& import, const Json& object, std::string path)
      : import_(import), object_(object), path_(std::move(path)) {
    if (!object_.is_object()) import_.Fail(path_ + ": expected an object");
  }

  std::string Path(const std::string& name) const {
    return path_.empty() ? name : path_ + "." + name;
  }
  // Null when it is not there.
  const Json* Find(const std::string& name) {
    known_.push_back(name);
    if (!object_.is_object()) return nullptr;
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }
  bool Has(const std::string& name) { return Find(name) != nullptr; }
  std::optional<double> Number(const std::string& name) {
    const Json* value = Find(name);
    if (value == nullptr) return std::nullopt;
    if (value->is_number()) return value->get<double>();
    Expected(name, *value, "a number");
    return std::nullopt;
  }
  std::optional<double> Count(const std::string& name) {
    const auto number = Number(name);
    if (!number) return std::nullopt;
    if (*number >= 0 && *number == std::floor(*number) && *number < 1e15) return number;
    Expected(name, *Find(name), "a whole number, 0 or more");
    return std::nullopt;
  }
  std::optional<std::string> Word(const std::string& name) {
    const Json* value = Find(name);
    if (value == nullptr) return std::nullopt;
    constexpr std::string_view kAllowed =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:,/";
    if (value->is_string() &&
        value->get<std::string>().find_first_not_of(kAllowed) == std::string::npos)
      return value->get<std::string>();
    Expected(name, *value, "a text of letters, digits and -_.:,/");
    return std::nullopt;
  }
  Members Object(const std::string& name) {
    static const Json kNone = Json::object();
    const Json* value = Find(name);
    return {import_, value == nullptr ? kNone : *value, Path(name)};
  }
  double Needed(const std::string& name) {
    const auto count = Count(name);
    if (!count) import_.Fail(Path(name) + ": missing; expected a whole number");
    return count.value_or(0);
  }
  void Expected(const std::string& name, const Json& value, const std::string& what) {
    import_.Fail(fmt::format("{} is {}, expected {}", Path(name), Text(value), what));
  }
  // Warns where the member is there.
  void Unused(const std::string& name, const std::string& why) {
    if (Has(name)) import_.Warn(fmt::format("{}: {}", Path(name), why));
  }
  // Fails for members that were not read.
  void End() {
    if (!object_.is_object()) return;
    for (const auto& [name, value] : object_.items())
      if (std::ranges::find(known_, name) == known_.end())
        import_.Fail(fmt::format("{}: unknown key; the nearest known one is {}", Shown(Path(name)),
                                 Path(Nearest(name, known_))));
  }

 private:
  Import& import_;
  const Json& object_;
  const std::string path_;
  std::vector<std::string> known_;
};

bool IsGenetic(const std::string& algorithm) {
  return algorithm == "deep-ga" || algorithm == "random-search";
}
bool IsNovelty(const std::string& algorithm) {
  return algorithm == "ns-es" || algorithm == "nsr-es";
}

// The value of run.algorithm for the programs' names; empty: none of them.
std::string AlgorithmOf(const std::string& program) {
  static const std::map<std::string, std::string> kNames = {
      {"ga", "deep-ga"}, {"rs", "random-search"}, {"es", "es"}, {"ns", "ns-es"}, {"nsr", "nsr-es"}};
  const auto found = kNames.find(program);
  return found == kNames.end() ? "" : found->second;
}

// ---- what both schemas have

// Limit of an episode of the population. `frames`: of one step.
void ReadCutoff(Import& import, Members& file, const std::string& algorithm, int64_t frames) {
  const Json* value = file.Find("episode_cutoff_mode");
  if (value == nullptr) return;
  if (value->is_number_integer()) {
    const auto steps = file.Count("episode_cutoff_mode");
    if (steps && IsGenetic(algorithm))
      import.SetNumber("env.frames_max", *steps * static_cast<double>(frames));
    else if (steps)
      import.Set("es.cutoff", fmt::format("{}", static_cast<int64_t>(*steps)));
    return;
  }
  const auto mode = file.Word("episode_cutoff_mode");
  if (!mode || *mode == "env_default") return;
  if (mode->starts_with("adaptive:") && !IsGenetic(algorithm))
    return import.Set("es.cutoff", *mode);
  file.Expected("episode_cutoff_mode", *value,
                IsGenetic(algorithm) ? "a number of steps or env_default"
                                     : "a number of steps, env_default or adaptive:...");
}

void ReadOptimizer(Import& import, Members file, bool distributed) {
  const auto type = file.Word("type");
  Members args = file.Object("args");
  const auto rate = args.Number("stepsize");
  if (type == "adam" || type == "sgd") {
    // the two programs' SGDs differ
    import.Set("es.optimizer", type == "adam" ? "adam"
                               : distributed  ? "sgd_damped"
                                              : "sgd_classic");
    if (rate) import.SetNumber("es.learning_rate", *rate);
  } else {
    import.Fail(file.Path("type") + (type ? " is " + *type : ": missing") +
                ": expected adam or sgd");
  }
  if (const auto momentum = type == "sgd" ? args.Number("momentum") : std::nullopt)
    import.SetNumber("es.momentum", *momentum);
  for (const auto& [name, fixed] :
       std::map<std::string, double>{{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}}) {
    const auto given = type == "adam" ? args.Number(name) : std::nullopt;
    if (given && *given != fixed)
      import.Fail(fmt::format("{} is {}: expected {}, which is fixed here", args.Path(name), *given,
                              fixed));
  }
  args.End();
  file.End();
}

void ReadShaping(Import& import, Members& file, const std::string& algorithm) {
  const auto mode = file.Word("return_proc_mode");
  if (!mode) return;
  // the programs for novelty search reuse the place of the signs' sum for novelty
  if (IsNovelty(algorithm)) {
    if (*mode != "centered_sign_rank")
      file.Expected("return_proc_mode", *mode, "centered_sign_rank");
  } else if (*mode == "centered_rank" || *mode == "sign" || *mode == "centered_sign_rank") {
    import.Set("es.shaping", *mode);
  } else {
    file.Expected("return_proc_mode", *mode, "centered_rank, sign or centered_sign_rank");
  }
}

// Keys of evolution strategies that a genetic algorithm's file carries along.
void NoteGeneticUnused(Members& file) {
  for (const char* name : {"l2coeff", "return_proc_mode"})
    file.Unused(name, "has no effect on a genetic algorithm, neither there nor here");
}

// ---- the accelerated program

// "frostbite" or "gym.CartPole-v1". Returns the frames of a step.
int64_t ReadGame(Import& import, Members& file) {
  const auto game = file.Word("game");
  if (!game) {
    import.Fail("game: missing; expected an Atari game or gym.ID");
    return 1;
  }
  if (game->starts_with("gym.")) {
    import.Set("env.id", game->substr(4));
    return 1;
  }
  import.Set("env.game", *game);
  import.Set("env.preset", "deepga-gpu");
  import.SetNumber("env.test_frames_max", kAtariTestFrames);
  return kFramesPerStep;
}

void ReadModel(Import& import, Members& file) {
  static const std::map<std::string, std::string> kModels = {{"LargeModel", "LargeModel"},
                                                             {"Model", "Model"},
                                                             {"SimpleClassifier", "mlp-16-16-relu"},
                                                             {"LinearClassifier", "linear"},
                                                             {"ModelVirtualBN", "ModelVirtualBN"}};
  const auto model = file.Word("model");
  if (!model) return import.Fail("model: missing; expected a network such as LargeModel");
  const auto found = kModels.find(*model);
  if (found == kModels.end()) {
    std::vector<std::string> names;
    names.reserve(kModels.size());
    for (const auto& [name, here] : kModels) names.push_back(name);
    return file.Expected("model", *model, fmt::format("one of {}", fmt::join(names, ", ")));
  }
  import.Set("network.name", found->second);
}

// A number, or a schedule over the steps of the run.
void ReadMutationPower(Import& import, Members& file, int64_t frames) {
  const Json* value = file.Find("mutation_power");
  if (value == nullptr) return import.Fail("mutation_power: missing; expected a number");
  if (!value->is_object()) {
    if (const auto power = file.Number("mutation_power"))
      import.SetNumber("ga.mutation_power", *power);
    return;
  }
  Members schedule = file.Object("mutation_power");
  const auto type = schedule.Word("type");
  if (type == "ConstantSchedule") {
    if (const auto power = schedule.Number("value")) import.SetNumber("ga.mutation_power", *power);
    return schedule.End();
  }
  if (type != "LinearSchedule" && type != "ExponentialSchedule")
    return file.Expected("mutation_power", *value,
                         "a number, or a ConstantSchedule, LinearSchedule or ExponentialSchedule");
  const auto first = schedule.Number("initial_p"), last = schedule.Number("final_p");
  const double steps = schedule.Needed("schedule");
  if (const auto field = schedule.Word("field"); field != "timesteps_so_far")
    import.Fail(schedule.Path("field") + ": expected timesteps_so_far");
  if (!first || !last) return import.Fail("mutation_power: expected initial_p and final_p");
  import.SetNumber("ga.mutation_power", *first);
  import.Set("ga.mutation_schedule", type == "LinearSchedule" ? "linear" : "exponential");
  import.SetNumber("ga.mutation_power_end", *last);
  import.SetNumber("ga.mutation_schedule_frames", steps * static_cast<double>(frames));
  if (type == "ExponentialSchedule")
    import.Warn(
        "mutation_power: that program fails at its first ExponentialSchedule; here it is "
        "exponential");
  schedule.End();
}

std::string GuessAccelerated(Members& file) {
  const Json* selected = file.Find("selection_threshold");
  if (file.Has("optimizer")) return "es";
  return selected != nullptr && *selected == 0 ? "random-search" : "deep-ga";
}

void ReadAccelerated(Import& import, Members& file, std::string& algorithm) {
  if (algorithm.empty()) algorithm = GuessAccelerated(file);
  const bool genetic = IsGenetic(algorithm);
  if (IsNovelty(algorithm))
    import.Fail("that program has ga, rs and es; expected one of them as --program");
  const int64_t frames = ReadGame(import, file);
  ReadModel(import, file);
  ReadCutoff(import, file, algorithm, frames);
  const std::string table = genetic ? "ga" : "es";
  double members = file.Needed("population_size");
  if (!genetic && std::fmod(members, 2) != 0) ++members;  // pairs
  import.SetNumber(table + ".population", members);
  const auto validation = file.Count("num_validation_episodes"),
             test = file.Count("num_test_episodes");
  if (genetic) {
    import.Set("ga.loop", "uber_gpu");
    import.SetNumber("ga.validation_candidates", file.Needed("validation_threshold"));
    if (validation) import.SetNumber("ga.validation_episodes", *validation);
    const double selected = file.Needed("selection_threshold");
    if (algorithm == "deep-ga") {
      import.SetNumber("ga.parents", selected);
      ReadMutationPower(import, file, frames);
    } else {
      file.Unused("mutation_power", "random search mutates nothing, neither there nor here");
    }
    NoteGeneticUnused(file);
    file.Unused("optimizer", "has no effect on a genetic algorithm, neither there nor here");
  } else {
    if (validation && *validation > 0) {
      import.SetNumber("es.validation_episodes", *validation);
      import.Warn(
          "num_validation_episodes: that program validates no centre; here each is, and "
          "counted in frames");
    }
    for (const char* name : {"validation_threshold", "selection_threshold"})
      file.Unused(name, "has no effect on evolution strategies, neither there nor here");
    if (const auto sigma = file.Number("mutation_power")) import.SetNumber("es.sigma", *sigma);
    if (const auto decay = file.Number("l2coeff")) import.SetNumber("es.weight_decay", *decay);
    ReadShaping(import, file, algorithm);
    ReadOptimizer(import, file.Object("optimizer"), /*distributed=*/false);
  }
  if (test) import.SetNumber(table + ".test_episodes", *test);
  import.SetNumber(table + ".frames", file.Needed("timesteps") * static_cast<double>(frames));
  for (const char* name : {"load_population", "load_from"})
    file.Unused(name,
                "its Python pickle cannot be read here: left out; begin from a policy file "
                "by run.init_from");
}

// ---- the distributed program

// "FrostbiteNoFrameskip-v4", "Humanoid-v1" or another id. Returns the frames of a step.
int64_t ReadEnvironment(Import& import, Members& file) {
  constexpr std::string_view kAtari = "NoFrameskip-v4";
  const auto id = file.Word("env_id");
  if (!id) {
    import.Fail("env_id: missing; expected an id of Gym such as FrostbiteNoFrameskip-v4");
    return 1;
  }
  if (id->ends_with(kAtari)) {
    std::string game;
    for (const char c : std::string_view(*id).substr(0, id->size() - kAtari.size())) {
      const bool upper = c >= 'A' && c <= 'Z';
      if (upper && !game.empty()) game += '_';
      game += upper ? static_cast<char>(c - 'A' + 'a') : c;
    }
    import.Set("env.game", game);
    import.Set("env.preset", "deepga");
    return kFramesPerStep;
  }
  static const std::vector<std::string> kMuJoCo = {"HalfCheetah",      "Hopper",
                                                   "Walker2d",         "Ant",
                                                   "Humanoid",         "HumanoidStandup",
                                                   "Swimmer",          "Reacher",
                                                   "InvertedPendulum", "InvertedDoublePendulum"};
  const size_t dash = id->rfind("-v");
  const std::string task = id->substr(0, dash);
  const bool older = dash != std::string::npos && id->substr(dash) < "-v5" &&
                     std::ranges::find(kMuJoCo, task) != kMuJoCo.end();
  import.Set("env.id", older ? task + "-v5" : *id);
  if (older)
    import.Warn(fmt::format("env_id: {} is played as {}-v5, whose observations and rewards differ",
                            *id, task));
  return 1;
}

// Sets es.init to what the policy's layers began with: normalised columns of its own, or the
// library's default (ESAtariPolicy). A GA draws its first population itself (ReadDistributedGa).
void SetInitialWeights(Import& import, const std::string& policy, const std::string& algorithm) {
  if (IsGenetic(algorithm)) return;
  static const std::map<std::string, std::string> kInits = {{"MujocoPolicy", "unit_norm_0.01"},
                                                            {"ESAtariPolicy", "xavier"},
                                                            {"GAAtariPolicy", "unit_norm"}};
  if (const auto found = kInits.find(policy); found != kInits.end())
    import.Set("es.init", found->second);
}

// `normalizes`: observations, by mean and deviation.
void ReadPolicy(Import& import, Members policy, const std::string& algorithm, bool normalizes) {
  const auto type = policy.Word("type");
  Members args = policy.Object("args");
  SetInitialWeights(import, type.value_or(""), algorithm);
  const auto activation = args.Word("nonlin_type").value_or("relu");
  if (activation != "relu" && activation != "tanh")
    import.Fail(fmt::format("{} is {}, expected relu or tanh", args.Path("nonlin_type"),
                            Shown(activation)));
  if (type == "GAAtariPolicy" || type == "ESAtariPolicy") {
    import.Set("network.layers",
               fmt::format("conv 16 8x8/4 same {0}, conv 32 4x4/2 same {0}, dense 256 {0}",
                           (type == "ESAtariPolicy" ? "vbn_affine " : "") + activation));
  } else if (type == "MujocoPolicy") {
    std::vector<std::string> layers;
    if (normalizes) layers.push_back("normalize");
    const Json* sizes = args.Find("hidden_dims");
    if (sizes == nullptr || !sizes->is_array() || sizes->empty()) {
      import.Fail("policy.args.hidden_dims: expected a list of layers' sizes");
    } else {
      for (const Json& size : *sizes) {
        if (!size.is_number_unsigned()) {
          args.Expected("hidden_dims", *sizes, "whole numbers");
          break;
        }
        layers.push_back(fmt::format("dense {} {}", size.get<uint64_t>(), activation));
      }
      import.Set("network.layers", fmt::format("{}", fmt::join(layers, ", ")));
    }
    if (const auto connection = args.Word("connection_type"); connection && *connection != "ff")
      args.Expected("connection_type", *connection, "ff");
    if (const auto bins = args.Word("ac_bins"); bins && *bins != "continuous:") {
      const auto values = ParseNumber<int64_t>(std::string_view(*bins).substr(bins->find(':') + 1));
      if (bins->starts_with("uniform:") && values >= 2)
        import.SetNumber("network.action_bins", static_cast<double>(*values));
      else
        args.Expected("ac_bins", *bins, "continuous: or uniform: and 2 or more values");
    }
    if (const auto noise = args.Number("ac_noise_std"); noise && *noise > 0) {
      if (IsGenetic(algorithm))
        args.Unused("ac_noise_std", "actions of a genetic algorithm have no noise here");
      else
        import.SetNumber("es.action_noise", *noise);
    }
  } else {
    import.Fail(policy.Path("type") + (type ? " is " + *type : ": missing") +
                ": expected GAAtariPolicy, ESAtariPolicy or MujocoPolicy");
  }
  policy.Unused("init_from",
                "its HDF5 file cannot be read here: left out; begin from a policy file "
                "by run.init_from");
  args.End();
  policy.End();
}

// `atari`: characterised by the machine's memory instead of the place where the body ends.
void ReadNovelty(Import& import, Members novelty, bool atari) {
  import.Set("novelty.behaviour", atari ? "ram" : "final_position");
  if (const auto k = novelty.Count("k")) import.SetNumber("novelty.neighbours", *k);
  if (const auto size = novelty.Count("population_size"))
    import.SetNumber("novelty.centres", *size);
  if (const auto rollouts = novelty.Count("num_rollouts"))
    import.SetNumber("es.validation_episodes", *rollouts);
  if (const auto method = novelty.Word("selection_method")) {
    if (*method != "novelty_prob" && *method != "round_robin")
      novelty.Expected("selection_method", *method, "novelty_prob or round_robin");
    import.Set("novelty.pick", *method == "novelty_prob" ? "novelty" : "round_robin");
  }
  novelty.End();
}

std::string GuessDistributed(Members& file) {
  if (const auto type = file.Word("algo_type")) {
    const std::string algorithm = AlgorithmOf(*type);
    if (IsNovelty(algorithm)) return algorithm;
    file.Expected("algo_type", *type, "ns or nsr");
  }
  return file.Has("num_elites") || !file.Has("optimizer") ? "deep-ga" : "es";
}

void ReadDistributedGa(Import& import, Members& file, Members& config,
                       const std::string& algorithm) {
  import.Set("ga.loop", "uber_dist");
  import.Set("ga.init", "unit_norm");
  const double episodes = config.Needed("episodes_per_batch");
  import.SetNumber("ga.population", episodes);
  const auto parents = file.Count("population_size"), elites = file.Count("num_elites");
  if (algorithm == "deep-ga") {
    import.SetNumber("ga.parents", parents.value_or(0));
    if (!parents) import.Fail("population_size: missing; expected the number of parents");
    import.SetNumber("ga.elites", elites.value_or(1));
    if (const auto power = config.Number("noise_stdev"))
      import.SetNumber("ga.mutation_power", *power);
  } else {
    file.Unused("population_size", "random search has no parents");
    file.Unused("num_elites", "random search has no parents");
    config.Unused("noise_stdev", "random search mutates nothing");
  }
  import.SetNumber("ga.validation_candidates", 0);
  import.SetNumber("ga.validation_episodes", 0);
  if (const auto part = config.Number("eval_prob"))
    import.SetNumber("ga.test_episodes", std::round(*part * episodes));
  config.Unused("timesteps_per_batch", "a generation has a number of episodes here, not of steps");
  config.Unused("calc_obstat_prob", "a genetic algorithm's observations are not normalised");
  NoteGeneticUnused(config);
  file.Unused("optimizer", "has no effect on a genetic algorithm, neither there nor here");
}

void ReadDistributedEs(Import& import, Members& file, Members& config,
                       const std::string& algorithm) {
  double episodes = config.Needed("episodes_per_batch");
  if (std::fmod(episodes, 2) != 0) ++episodes;  // pairs
  import.SetNumber("es.population", episodes);
  if (const auto sigma = config.Number("noise_stdev")) import.SetNumber("es.sigma", *sigma);
  if (const auto decay = config.Number("l2coeff")) import.SetNumber("es.weight_decay", *decay);
  if (const auto steps = config.Count("timesteps_per_batch"))
    import.SetNumber("es.min_steps", *steps);
  if (IsNovelty(algorithm))
    config.Unused("eval_prob", "novelty_search.num_rollouts says how each new centre is played");
  else if (const auto part = config.Number("eval_prob"))
    import.SetNumber("es.validation_episodes", std::max(1.0, std::round(*part * episodes)));
  ReadShaping(import, config, algorithm);
  ReadOptimizer(import, file.Object("optimizer"), /*distributed=*/true);
  for (const char* name : {"population_size", "num_elites"})
    file.Unused(name, "has no effect on evolution strategies, neither there nor here");
}

void ReadDistributed(Import& import, Members& file, std::string& algorithm) {
  if (algorithm.empty())
    algorithm = GuessDistributed(file);
  else
    (void)file.Word("algo_type");
  Members config = file.Object("config");
  const int64_t frames = ReadEnvironment(import, file);
  if (const auto name = file.Word("exp_prefix")) import.Set("run.name", *name);
  ReadCutoff(import, config, algorithm, frames);
  if (IsGenetic(algorithm))
    ReadDistributedGa(import, file, config, algorithm);
  else
    ReadDistributedEs(import, file, config, algorithm);
  const double share = IsGenetic(algorithm) ? 0 : config.Number("calc_obstat_prob").value_or(0);
  if (share > 1)
    config.Expected("calc_obstat_prob", fmt::format("{}", share), "a share of episodes, 0 to 1");
  const bool normalizes = share > 0;
  if (normalizes && IsNovelty(algorithm))
    import.Warn(
        "config.calc_obstat_prob: the statistics of observations are those of a batch that "
        "is played at the start, not of a part of all episodes");
  else if (normalizes)
    import.SetNumber("es.observation_share", std::min(share, 1.0));
  ReadPolicy(import, file.Object("policy"), algorithm, normalizes);
  if (IsNovelty(algorithm))
    ReadNovelty(import, file.Object("novelty_search"), frames == kFramesPerStep);
  else
    file.Unused("novelty_search", "has no effect on " + algorithm);
  config.Unused("snapshot_freq", "not needed: every generation is saved here");
  config.End();
}

// ---- output

// Keys in the order they were set, table by table.
std::string ToToml(const Import& import, const std::string& algorithm) {
  std::vector<std::string> tables = {"run"};
  std::map<std::string, std::string> bodies;
  bodies["run"] = fmt::format("algorithm = \"{}\"\n", algorithm);
  for (const auto& [key, value] : import.keys) {
    const size_t dot = key.find('.');
    const std::string table = key.substr(0, dot);
    if (!bodies.contains(table)) tables.push_back(table);
    bodies[table] += key.substr(dot + 1) + " = " + value + "\n";
  }
  std::string toml = "# Imported from a configuration file of 2018.\n";
  for (const std::string& line : import.warnings) toml += "# " + line + "\n";
  for (const std::string& table : tables) toml += "[" + table + "]\n" + bodies[table];
  return toml;
}

}  // namespace

bool IsConfig2018(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return false;
  for (const char* name : {"model", "config", "env_id", "population_size"})
    if (json.contains(name)) return true;
  return false;
}

Result<ImportedConfig> ImportConfig2018(std::string_view text, const std::string& program) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Status(Code::kBadData, "not a JSON object");
  std::string algorithm = AlgorithmOf(program);
  if (algorithm.empty() && !program.empty())
    return Status(Code::kConfig, Shown(program) + ": expected ga, rs, es, ns or nsr");
  Import import;
  Members file(import, json, "");
  if (json.contains("config") || json.contains("env_id") || json.contains("policy"))
    ReadDistributed(import, file, algorithm);
  else
    ReadAccelerated(import, file, algorithm);
  file.End();
  RETURN_IF_ERROR(import.failure);

  // what was made must be what a run reads
  ImportedConfig imported{algorithm, ToToml(import, algorithm), import.warnings};
  ExperimentConfig config;
  config.ChooseAlgorithm(imported.toml);
  RETURN_IF_ERROR(config.Table().ParseToml(imported.toml, "as it would run here"));
  return imported;
}

}  // namespace samara
