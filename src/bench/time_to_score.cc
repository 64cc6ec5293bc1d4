// Wall time and frames until an agent plays: samara's preset and rivals' same algorithm with their
// published settings (time_to_score_NAME.py), seed by seed in turns on the same cores. Each trains
// until 20 fresh episodes have a mean return of at least the task's score.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "bench/bench.h"
#include "core/cpu.h"
#include "core/statistics.h"

namespace samara::bench {

using nlohmann::json;

namespace {

using Names = std::vector<std::string>;

struct Task {
  const char* name;
  double score;
  const char* preset;
  Names rivals;  // their scripts are time_to_score_NAME.py
};

const std::vector<Task>& Tasks() {
  static const Names two = {"stable-baselines3", "cleanrl"};
  static const Names three = {"stable-baselines3", "cleanrl", "sample-factory"};
  static const std::vector<Task> tasks = {
      {"cartpole", 475, "classic/cartpole-ppo", two},
      {"acrobot", -100, "classic/acrobot-ppo", two},
      {"pendulum", -200, "classic/pendulum-sac", {"stable-baselines3", "cleanrl", "rltools"}},
      {"hopper", 2000, "mujoco/hopper-ppo", three},
      {"halfcheetah", 1500, "mujoco/halfcheetah-ppo", three},
      {"halfcheetah-sac", 5000, "mujoco/halfcheetah-sac", two},
      {"pong", 18, "atari/ppo-quick", three},
      {"breakout", 100, "atari/breakout-ppo", three},
  };
  return tasks;
}

Result<Task> FindTask(const std::string& name) {
  std::vector<std::string> names;
  for (const Task& task : Tasks()) {
    if (task.name == name) return task;
    names.emplace_back(task.name);
  }
  return Status(Code::kUsage, fmt::format("--task {}: expected one of {}",
                                          name.empty() ? "(none)" : name, fmt::join(names, ", ")));
}

// The task's rivals, or those of them that were asked for.
Result<Names> RivalsOf(const Task& task, const Options& options) {
  if (!options.rivals) return Names();
  for (const std::string& name : options.rival)
    if (std::ranges::find(task.rivals, name) == task.rivals.end())
      return Status(Code::kUsage, fmt::format("--rival {}: expected one of {}'s: {}", name,
                                              task.name, fmt::join(task.rivals, ", ")));
  return options.rival.empty() ? task.rivals : options.rival;
}

constexpr double kForever = std::numeric_limits<double>::infinity();

json Finite(double x) { return std::isfinite(x) ? json(x) : json(); }

// Result of a training: infinite where its frames or its seconds were not enough.
struct Outcome {
  double seconds = kForever;
  double frames = kForever;
};

Outcome OutcomeOf(const json& seconds, const json& frames) {
  if (!seconds.is_number() || !frames.is_number()) return {};
  return {seconds.get<double>(), frames.get<double>()};
}

// kUsage if the run in `folder` was begun by another command: its time is not the task's.
Status CheckSameRun(const Path& folder, const std::vector<std::string>& command) {
  const auto text = ReadFile(folder / "run.json");
  if (!text.ok()) return Status::Ok();  // --resume says what is missing
  const json identity = json::parse(*text, nullptr, false);
  if (identity.is_object() && identity.value("command", json()) == json(command))
    return Status::Ok();
  return {Code::kUsage,
          fmt::format("--runs: {} is not a run of `{}`; expected another folder, or it removed",
                      folder.string(), fmt::join(command, " "))};
}

// A training of samara, in a run folder of its own; one that is there already goes on, or says its
// result again.
Result<Outcome> TrainOurs(const Task& task, int seed, const Path& folder) {
  std::error_code failed;
  const Path program =
      std::filesystem::read_symlink("/proc/self/exe", failed).parent_path() / "samara";
  std::vector<std::string> command = {"samara",
                                      "train",
                                      task.preset,
                                      fmt::format("run.seed={}", seed),
                                      fmt::format("run.stop_at={}", task.score),
                                      "run.random_episodes=0",
                                      "run.video=false",
                                      "learn.test_episodes=0"};
  if (std::filesystem::exists(folder, failed)) {
    RETURN_IF_ERROR(CheckSameRun(folder, command));
    command = {"", "train", "--resume", folder.string()};
  } else {
    command.insert(command.end(), {"--out", folder.string()});
  }
  command[0] = program.string();
  command.insert(command.end(), {"--json", "--quiet"});
  ASSIGN_OR_RETURN(const json result, RunForJson(std::move(command)));
  return OutcomeOf(result.value("solved_seconds", json()), result.value("solved_frames", json()));
}

// Whether `said` is a rival's result that holds for this question: of this score and these cores,
// and, where it was given up, after as long as `seconds`.
bool Holds(const json& said, double score, double seconds) {
  const auto number = [&](const char* key) { return said.value(key, json()).is_number(); };
  if (!said.is_object() || !said.value("rival", json()).is_string() ||
      !said.value("curve", json()).is_array() || said.value("score", json()) != score ||
      said.value("cores", json()) != Cores())
    return false;
  if (number("seconds") && number("frames"))
    return said["seconds"].get<double>() > 0 && said["frames"].get<double>() > 0;
  if (!said.contains("given_up_after")) return false;
  const json& limit = said["given_up_after"];  // null: never
  return limit.is_null() || (limit.is_number() && limit.get<double>() >= seconds);
}

// Asks a rival's script, or takes what it said before. It gives up after `seconds`.
Result<json> TrainRival(const Task& task, const std::string& rival, int seed, double seconds,
                        const Path& file) {
  if (const auto text = ReadFile(file); text.ok())
    if (json before = json::parse(*text, nullptr, false); Holds(before, task.score, seconds))
      return before;
  std::string script = fmt::format("time_to_score_{}.py", rival);
  std::ranges::replace(script, '-', '_');
  ASSIGN_OR_RETURN(json result,
                   RunRival(script, {task.name, fmt::format("{}", task.score), std::to_string(seed),
                                     std::to_string(Cores()), fmt::format("{}", seconds)}));
  result.update({{"score", task.score}, {"cores", Cores()}, {"given_up_after", Finite(seconds)}});
  if (!result.contains("reason")) RETURN_IF_ERROR(WriteFileAtomic(file, result.dump() + "\n"));
  return result;
}

double MedianOf(const std::vector<Outcome>& outcomes, double Outcome::*member) {
  std::vector<double> values;
  values.reserve(outcomes.size());
  for (const Outcome& outcome : outcomes) values.push_back(outcome.*member);
  return Median(values);  // infinite where half of them are
}

// A program, and the outcomes of its seeds.
struct Program {
  std::string name = {};     // a rival's, as --rival has it
  std::string version = {};  // and as it says itself
  std::string missing = {};  // why it cannot run here; empty: it can
  std::vector<Outcome> outcomes = {};

  double seconds() const { return MedianOf(outcomes, &Outcome::seconds); }
  double frames() const { return MedianOf(outcomes, &Outcome::frames); }
};

// A rival in the result, all null without one: "ratio" is its time over `seconds`, samara's;
// "ratio_above" where it was given up.
json Compared(const Program* rival, double seconds, double patience) {
  json row = {{"rival", nullptr},
              {"rival_seconds", nullptr},
              {"rival_frames", nullptr},
              {"ratio", nullptr},
              {"ratio_above", nullptr}};
  if (rival == nullptr) return row;
  const double theirs = rival->seconds();
  row["rival"] = rival->version;
  row["rival_seconds"] = Finite(theirs), row["rival_frames"] = Finite(rival->frames());
  if (!std::isfinite(seconds)) return row;
  if (std::isfinite(theirs)) row["ratio"] = theirs / seconds;
  if (!std::isfinite(theirs) && patience > 0) row["ratio_above"] = patience;
  return row;
}

}  // namespace

Result<json> TimeToScore(const Options& options) {
  ASSIGN_OR_RETURN(const Task task, FindTask(options.task));
  ASSIGN_OR_RETURN(const auto names, RivalsOf(task, options));
  std::unique_ptr<Scratch> scratch;
  Path folder = options.runs;
  if (folder.empty()) {
    ASSIGN_OR_RETURN(scratch, Scratch::Make());
    folder = scratch->path();
  }
  RETURN_IF_ERROR(CreateFolders(folder));
  Program ours = {.version = task.preset};
  std::vector<Program> rivals;
  for (const std::string& name : names) rivals.push_back({.name = name});
  json rows = json::array();
  const auto add = [&](Program& program, int seed, Outcome outcome) {
    program.outcomes.push_back(outcome);
    rows.push_back({{"task", task.name},
                    {"by", program.version},
                    {"seed", seed},
                    {"seconds", Finite(outcome.seconds)},
                    {"frames", Finite(outcome.frames)}});
    options.say(fmt::format("{}, seed {}: {} s, {} frames", program.version, seed,
                            rows.back()["seconds"].dump(), rows.back()["frames"].dump()));
  };
  for (int seed = 1; seed <= options.seeds; ++seed) {
    ASSIGN_OR_RETURN(const Outcome mine,
                     TrainOurs(task, seed, folder / fmt::format("{}-{}", task.name, seed)));
    add(ours, seed, mine);
    for (Program& rival : rivals) {
      if (!rival.missing.empty()) continue;
      const double seconds = options.patience > 0 ? options.patience * mine.seconds : kForever;
      ASSIGN_OR_RETURN(
          const json theirs,
          TrainRival(task, rival.name, seed, seconds,
                     folder / fmt::format("{}-{}-{}.json", task.name, seed, rival.name)));
      if (theirs.contains("reason")) {
        rival.missing = theirs["reason"];
        options.say(fmt::format("{}: {}", rival.name, rival.missing));
        continue;
      }
      rival.version = theirs["rival"];
      add(rival, seed, OutcomeOf(theirs["seconds"], theirs["frames"]));
      if (!theirs["curve"].empty())
        options.say(fmt::format("its last training episodes: [seconds, frames, mean] = {}",
                                theirs["curve"].back().dump()));
    }
  }
  const double seconds = ours.seconds();
  json result = {{"task", task.name},
                 {"score", task.score},
                 {"preset", task.preset},
                 {"cores", Cores()},
                 {"seeds", options.seeds},
                 {"seconds", Finite(seconds)},
                 {"frames", Finite(ours.frames())}};
  result["rivals"] = json::array();
  const Program* quickest = nullptr;  // of the rivals that are here
  for (const Program& rival : rivals) {
    if (!rival.missing.empty()) {
      result["rival_missing"] = rival.missing;
      continue;
    }
    result["rivals"].push_back(Compared(&rival, seconds, options.patience));
    if (quickest == nullptr || rival.seconds() < quickest->seconds()) quickest = &rival;
  }
  result.update(Compared(quickest, seconds, options.patience));
  return Report(std::move(rows), std::move(result));
}

}  // namespace samara::bench
