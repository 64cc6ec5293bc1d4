// Wall time and frames until an agent plays: samara's preset and a rival's same algorithm with its
// published settings (Stable-Baselines3's: time_to_score_rivals.py), seed by seed in turns on the
// same cores. Each trains until 20 fresh episodes have a mean return of at least the task's score.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "bench/bench.h"
#include "core/cpu.h"
#include "core/statistics.h"

namespace samara::bench {

using nlohmann::json;

namespace {

struct Task {
  const char* name;
  double score;
  const char* preset;
  double frames;  // the rival's budget; samara's is its preset's
  const char* game = nullptr;
  const char* rival = "time_to_score_rivals.py";
};
constexpr Task kTasks[] = {
    {"cartpole", 475, "classic/cartpole-ppo", 1e5},
    {"acrobot", -100, "classic/acrobot-ppo", 1e6},
    {"pendulum", -200, "classic/pendulum-sac", 1e5},
    {"pendulum-rltools", -200, "classic/pendulum-sac", 2e4, nullptr, "time_to_score_rltools.py"},
    {"hopper", 2000, "mujoco/hopper-ppo", 1e6},
    {"halfcheetah", 1500, "mujoco/halfcheetah-ppo", 1e6},
    {"halfcheetah-sac", 5000, "mujoco/halfcheetah-sac", 1e6},
    {"pong", 18, "atari/ppo-quick", 4e7, "pong"},
    {"breakout", 100, "atari/ppo-quick", 4e7, "breakout"},
};

Result<Task> FindTask(const std::string& name) {
  std::vector<std::string> names;
  for (const Task& task : kTasks) {
    if (task.name == name) return task;
    names.emplace_back(task.name);
  }
  return Status(Code::kUsage, fmt::format("--task {}: expected one of {}",
                                          name.empty() ? "(none)" : name, fmt::join(names, ", ")));
}

constexpr double kForever = std::numeric_limits<double>::infinity();

// Result of a training: infinite where its frames or its seconds were not enough.
struct Outcome {
  double seconds = kForever;
  double frames = kForever;
};

Outcome OutcomeOf(const json& seconds, const json& frames) {
  if (!seconds.is_number() || !frames.is_number()) return {};
  return {seconds.get<double>(), frames.get<double>()};
}

// A training of samara, in a run folder of its own; one that is there already goes on, or says its
// result again.
Result<Outcome> TrainOurs(const Task& task, int seed, const Path& folder) {
  std::error_code failed;
  const Path program =
      std::filesystem::read_symlink("/proc/self/exe", failed).parent_path() / "samara";
  std::vector<std::string> command = {program.string(), "train"};
  if (std::filesystem::exists(folder, failed)) {
    command.insert(command.end(), {"--resume", folder.string()});
  } else {
    command.insert(command.end(),
                   {task.preset, "--out", folder.string(), fmt::format("run.seed={}", seed),
                    fmt::format("run.stop_at={}", task.score), "run.random_episodes=0",
                    "run.video=false", "learn.test_episodes=0"});
    if (task.game != nullptr) command.push_back(fmt::format("env.game={}", task.game));
  }
  command.insert(command.end(), {"--json", "--quiet"});
  ASSIGN_OR_RETURN(const json result, RunForJson(std::move(command)));
  return OutcomeOf(result.value("solved_seconds", json()), result.value("solved_frames", json()));
}

// Asks the rival's script, or takes what it said before. It gives up after `seconds`.
Result<json> TrainRival(const Task& task, int seed, double seconds, const Path& file) {
  if (const auto text = ReadFile(file); text.ok())
    if (json before = json::parse(*text, nullptr, false); before.is_object()) return before;
  ASSIGN_OR_RETURN(json rival,
                   RunRival(task.rival, {task.name, fmt::format("{}", task.score),
                                         std::to_string(seed), fmt::format("{}", task.frames),
                                         std::to_string(Cores()), fmt::format("{}", seconds)}));
  if (!rival.contains("reason")) RETURN_IF_ERROR(WriteFileAtomic(file, rival.dump() + "\n"));
  return rival;
}

json Finite(double x) { return std::isfinite(x) ? json(x) : json(); }

double MedianOf(const std::vector<Outcome>& outcomes, double Outcome::*member) {
  std::vector<double> values;
  values.reserve(outcomes.size());
  for (const Outcome& outcome : outcomes) values.push_back(outcome.*member);
  return Median(values);  // infinite where half of them are
}

}  // namespace

Result<json> TimeToScore(const Options& options) {
  ASSIGN_OR_RETURN(const Task task, FindTask(options.task));
  std::unique_ptr<Scratch> scratch;
  Path folder = options.runs;
  if (folder.empty()) {
    ASSIGN_OR_RETURN(scratch, Scratch::Make());
    folder = scratch->path();
  }
  RETURN_IF_ERROR(CreateFolders(folder));
  json result = {{"task", task.name},        {"score", task.score},     {"preset", task.preset},
                 {"cores", Cores()},         {"seeds", options.seeds},  {"rival", nullptr},
                 {"rival_seconds", nullptr}, {"rival_frames", nullptr}, {"ratio", nullptr},
                 {"ratio_above", nullptr}};
  std::vector<Outcome> ours, rivals;
  json rows = json::array();
  for (int seed = 1; seed <= options.seeds; ++seed) {
    ASSIGN_OR_RETURN(const Outcome mine,
                     TrainOurs(task, seed, folder / fmt::format("{}-{}", task.name, seed)));
    ours.push_back(mine);
    json row = {{"task", task.name},
                {"seed", seed},
                {"seconds", Finite(mine.seconds)},
                {"frames", Finite(mine.frames)}};
    options.say(fmt::format("{}, seed {}: {} s, {} frames", task.preset, seed,
                            row["seconds"].dump(), row["frames"].dump()));
    if (options.rivals && !result.contains("rival_missing")) {
      ASSIGN_OR_RETURN(
          const json rival,
          TrainRival(task, seed, options.patience > 0 ? options.patience * mine.seconds : kForever,
                     folder / fmt::format("{}-{}-rival.json", task.name, seed)));
      if (rival.contains("reason")) {
        result["rival_missing"] = rival["reason"];
      } else {
        result["rival"] = rival["rival"];
        rivals.push_back(OutcomeOf(rival["seconds"], rival["frames"]));
        row["rival_seconds"] = rival["seconds"], row["rival_frames"] = rival["frames"];
        options.say(fmt::format("{}, seed {}: {} s, {} frames", rival["rival"].get<std::string>(),
                                seed, rival["seconds"].dump(), rival["frames"].dump()));
        if (!rival["curve"].empty())
          options.say(fmt::format("its last training episodes: [seconds, frames, mean] = {}",
                                  rival["curve"].back().dump()));
      }
    }
    rows.push_back(std::move(row));
  }
  const double seconds = MedianOf(ours, &Outcome::seconds);
  result["seconds"] = Finite(seconds), result["frames"] = Finite(MedianOf(ours, &Outcome::frames));
  if (!rivals.empty()) {
    const double theirs = MedianOf(rivals, &Outcome::seconds);
    result["rival_seconds"] = Finite(theirs);
    result["rival_frames"] = Finite(MedianOf(rivals, &Outcome::frames));
    if (std::isfinite(seconds) && std::isfinite(theirs)) result["ratio"] = theirs / seconds;
    if (std::isfinite(seconds) && !std::isfinite(theirs) && options.patience > 0)
      result["ratio_above"] = options.patience;
  }
  return Report(std::move(rows), std::move(result));
}

}  // namespace samara::bench
