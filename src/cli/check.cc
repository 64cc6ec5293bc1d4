// samara check: one environment made and played at random, before a run depends on it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/given.h"
#include "core/clock.h"
#include "core/crc32c.h"
#include "core/format.h"
#include "core/log.h"
#include "core/reminder.h"
#include "core/rng.h"
#include "core/signals.h"
#include "fleet/named_environment.h"
#include "fleet/user_traceback.h"

namespace samara {
namespace {

struct CheckArguments {
  std::string environment, preset = "ale-v5";
  std::vector<std::string> overrides;
  double seconds = 1;
  uint64_t seed = 0;
  bool json = false;
};

std::string AboutObservation(const ObservationSpec& spec) {
  return fmt::format("{} [{}]", spec.dtype == DType::kUint8 ? "uint8" : "float32",
                     fmt::join(spec.shape, ", "));
}

std::string AboutAction(const ActionSpec& spec) {
  if (!spec.discrete)
    return fmt::format("box of {}, from [{:g}] to [{:g}]", spec.n, fmt::join(spec.low, ", "),
                       fmt::join(spec.high, ", "));
  if (spec.sizes.empty()) return fmt::format("{} choices", spec.n);
  return fmt::format("{} choices: {}", spec.n, fmt::join(spec.sizes, " x "));
}

// The first number of an action that has no finite bounds; null: all have.
nlohmann::json FirstOpen(const ActionSpec& spec) {
  for (size_t i = 0; !spec.discrete && i < spec.low.size(); ++i)
    if (!std::isfinite(spec.low[i]) || !std::isfinite(spec.high[i])) return i;
  return nullptr;
}

// While one lives, what actors print goes to a traceback, of an environment that is checked also
// to `warnings`, and nothing of the log is shown.
class Listening {
 public:
  Listening(UserTraceback& traceback, std::vector<std::string>& warnings) {
    SetLogLevel(LogLevel::kDebug);
    SetLogSink([&](std::string_view line) {
      constexpr std::string_view kWarning = "check: ";  // python/samara/gym.py
      while (line.ends_with('\n')) line.remove_suffix(1);
      const size_t colon = line.find(": ");  // after the actor's name
      if (colon == line.npos) return;
      line.remove_prefix(colon + 2);
      if (line.starts_with(kWarning))
        warnings.emplace_back(line.substr(kWarning.size()));
      else
        traceback.Take(line);
    });
  }
  ~Listening() {
    SetLogSink(nullptr);
    SetLogLevel(LogLevel::kInfo);
  }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
};

// Plays one slot at random.
class RandomPlayer {
 public:
  RandomPlayer(Fleet& fleet, const NamedEnvironment& environment, uint64_t seed)
      : fleet_(fleet),
        preset_(environment.preset),
        seed_(seed),
        actions_(DeriveKey(seed, Purpose::kRandomPolicy)),
        values_(fleet.spec().action.discrete ? 0 : static_cast<size_t>(fleet.spec().action.n)) {}

  // Until the time is over and an episode has ended, or a step has failed; steps per second.
  Result<double> Play(double seconds) {
    const SteadyTime start = Now();
    Begin();
    for (;;) {
      ASSIGN_OR_RETURN(const SlotEvent event, Next());
      if (event.kind == SlotEvent::Kind::kLost) {  // killed from outside
        Begin();
        continue;
      }
      if (event.kind == SlotEvent::Kind::kEnded) ++ended_;
      const double passed = SecondsSince(start);
      const bool enough = ended_ > 0 || passed > std::max(kEpisodeSeconds, kEpisodeShare * seconds);
      if (passed > seconds && enough && steps_ > 0) return static_cast<double>(steps_) / passed;
      event.kind == SlotEvent::Kind::kEnded ? Begin() : Act();
    }
  }
  uint64_t episodes() const { return ended_; }

  // A checksum of the observation and the result of each step of the first episode, until it ends,
  // the time is over, or there are `most` of them.
  Result<std::vector<uint32_t>> Beginning(double seconds, size_t most) {
    const SteadyTime start = Now();
    std::vector<uint32_t> sums;
    for (Begin();; Act()) {
      ASSIGN_OR_RETURN(const SlotEvent event, Next());
      if (event.kind == SlotEvent::Kind::kLost) return sums;
      const auto seen = fleet_.observation(0);
      std::string step(reinterpret_cast<const char*>(seen.data()), seen.size());
      step += fmt::format("{} {} {}", event.result.reward, event.result.terminated,
                          event.result.truncated);
      sums.push_back(Crc32c(step));
      if (event.kind == SlotEvent::Kind::kEnded || sums.size() >= most ||
          SecondsSince(start) > seconds)
        return sums;
    }
  }

 private:
  // The slot's next event, which is not kFailed.
  Result<SlotEvent> Next() {
    for (SlotEvent event;;) {
      if (StopRequested()) return Status(Code::kTryAgain, "stopped");
      if (fleet_.Wait({&event, 1}, std::chrono::milliseconds(200)) == 0) {
        RETURN_IF_ERROR(fleet_.status());
        continue;
      }
      if (event.kind == SlotEvent::Kind::kFailed) return fleet_.status();
      return event;
    }
  }

  // how long it waits for the end of an episode, which may have none
  static constexpr double kEpisodeSeconds = 5, kEpisodeShare = 15;

  void Begin() {
    const uint64_t key = DeriveKey(seed_, Purpose::kEpisodeEval, 0, 0, begun_);
    const int32_t noops = preset_ ? DrawNoops(*preset_, key, /*has_fire=*/false) : 0;
    fleet_.Begin(0, begun_++, {.seed = key, .noops = noops});
  }
  void Act() {
    const ActionSpec& spec = fleet_.spec().action;
    Action action{.index = 0, .values = values_};
    if (spec.discrete)
      action.index =
          static_cast<int32_t>(actions_.UniformInt(draws_++, static_cast<uint64_t>(spec.n)));
    for (float& value : values_) value = static_cast<float>(2 * actions_.Uniform(draws_++) - 1);
    ++steps_;
    fleet_.Act(0, action);
  }

  Fleet& fleet_;
  const std::optional<AtariPreset> preset_;
  const uint64_t seed_;
  const CounterRng actions_;
  std::vector<float> values_;
  uint64_t begun_ = 0, ended_ = 0, steps_ = 0, draws_ = 0;
};

// Makes the environment; where that takes long, says how long it waits.
Result<std::unique_ptr<Fleet>> Start(const CheckArguments& args, const NamedEnvironment& named,
                                     const ActorFleetOptions& options) {
  constexpr double kPatience = 5;
  const Reminder slow(kPatience, [&] {
    if (!args.json)
      std::fprintf(stderr, "starting %s; after %.0f s without an answer it counts as hung\n",
                   args.environment.c_str(), options.hello_timeout);
  });
  return MakeNamedFleet(named, 0, options);
}

// The step at which the first episode, played twice with the same seed and actions, is another one
// the second time; nothing: it is not, as far as was looked.
Result<std::optional<size_t>> FirstDifference(Fleet& fleet, const NamedEnvironment& named,
                                              const CheckArguments& args) {
  constexpr size_t kStepsMax = 200;
  constexpr double kShare = 0.5;
  RandomPlayer first(fleet, named, args.seed), second(fleet, named, args.seed);
  ASSIGN_OR_RETURN(const auto a, first.Beginning(kShare * args.seconds, kStepsMax));
  ASSIGN_OR_RETURN(const auto b, second.Beginning(args.seconds, a.size()));
  const size_t same = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  if (same < std::min(a.size(), b.size())) return std::optional(same);
  return std::optional<size_t>();
}

// Refuses the name of an Atari game that is not written as one.
Status RefuseGameName(const CheckArguments& args) {
  const std::string game = GameMeant(args.environment);
  if (game.empty() || args.environment == "atari/" + game || args.environment.starts_with("ALE/"))
    return Status::Ok();
  return {Code::kConfig,
          fmt::format("{}: an Atari game, expected atari/{}", Shown(args.environment), game)};
}

// The environment, one of Gymnasium's so that it looks at its observations.
Result<NamedEnvironment> Find(const CheckArguments& args) {
  const bool versioned = args.environment.find("-v") != std::string::npos;
  if (!versioned) RETURN_IF_ERROR(RefuseGameName(args));  // Blackjack-v1 may be Gymnasium's
  ASSIGN_OR_RETURN(const GymOptions gym, ParseGymOptions(args.overrides));
  ASSIGN_OR_RETURN(NamedEnvironment named, FindEnvironment(args.environment, args.preset, gym));
  auto json = nlohmann::json::parse(named.actor_json, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.value("kind", "") == "gym") {
    json["check"] = true;
    named.actor_json = json.dump();
  }
  return named;
}

// Fills `found` as far as it comes.
Status Examine(const CheckArguments& args, nlohmann::json& found) {
  ASSIGN_OR_RETURN(const NamedEnvironment named, Find(args));
  ActorFleetOptions options;
  options.slots = 1;
  options.failures_max = 1;  // what fails once is to be shown
  auto started = Start(args, named, options);
  if (started.status().code() == Code::kConfig) RETURN_IF_ERROR(RefuseGameName(args));
  ASSIGN_OR_RETURN(const auto fleet, std::move(started));
  if (!args.json)
    std::fprintf(stderr, "playing %s at random for at least %g s\n", args.environment.c_str(),
                 args.seconds);
  found["observation"] = AboutObservation(fleet->spec().observation);
  found["action"] = AboutAction(fleet->spec().action);
  found["open_action"] = FirstOpen(fleet->spec().action);
  const GracefulStop looked_at;
  RandomPlayer player(*fleet, named, args.seed);
  ASSIGN_OR_RETURN(found["steps_per_second"], player.Play(args.seconds));
  found["episodes"] = player.episodes();
  ASSIGN_OR_RETURN(const std::optional<size_t> differs, FirstDifference(*fleet, named, args));
  found["reproducible"] = !differs;
  if (differs) found["differs_at"] = *differs;
  found["ok"] = true;
  return Status::Ok();
}

void PrintPeople(const CheckArguments& args, const nlohmann::json& found) {
  if (found["observation"].is_null()) return;  // the error says it all
  std::printf("%s\n", args.environment.c_str());
  for (const char* key : {"observation", "action"})
    if (found[key].is_string())
      std::printf("  %-13s%s\n", key, found[key].get<std::string>().c_str());
  if (found["ok"].get<bool>())
    std::printf("  %-13s%.0f steps/s, %s\n", "ok", found["steps_per_second"].get<double>(),
                CountText(found["episodes"].get<double>(), "random episode").c_str());
}

// Adds to `warnings` what would surprise in a run.
void Judge(const nlohmann::json& found, std::vector<std::string>& warnings) {
  if (!found["open_action"].is_null())
    warnings.push_back(fmt::format(
        "the action's number {} has no finite bounds: it gets what the policy gives, about -1 to "
        "1, unscaled; declare the bounds that it means in action_space",
        found["open_action"].get<size_t>()));
  if (found["episodes"] == 0)
    warnings.push_back(fmt::format(
        "no episode has ended: if none ever does, a run waits for ever; end them after a number of "
        "steps by {}, or give --seconds more",
        kTimeLimit));
  if (!found["differs_at"].is_null())
    warnings.push_back(fmt::format(
        "the same seed and actions gave another episode from step {} on: results with it cannot be "
        "repeated; draw random numbers from self.np_random only, and set everything in reset",
        found["differs_at"].get<size_t>()));
}

// Without an actor's hint at this command, in which options may follow the environment.
Status WithoutHint(const Status& status, const std::string& environment) {
  constexpr std::string_view kEnd = "` shows the traceback";
  std::string text = status.message();
  const size_t begin = text.find("; `samara check " + environment);
  const size_t end = begin == text.npos ? text.npos : text.find(kEnd, begin);
  if (status.ok() || end == text.npos) return status;
  return {status.code(), text.erase(begin, end + kEnd.size() - begin)};
}

Status RunCheck(const CheckArguments& args, Invocation& invocation) {
  InstallSignalHandlers();
  nlohmann::json found = {{"ok", false},
                          {"environment", args.environment},
                          {"observation", nullptr},
                          {"action", nullptr},
                          {"open_action", nullptr},
                          {"episodes", 0},
                          {"steps_per_second", nullptr},
                          {"reproducible", nullptr},
                          {"differs_at", nullptr},
                          {"error", nullptr},
                          {"traceback", nlohmann::json::array()},
                          {"warnings", nlohmann::json::array()}};
  UserTraceback traceback;
  std::vector<std::string> warnings;
  Status status;
  {
    const Listening listening(traceback, warnings);
    status = Examine(args, found);
  }
  if (status.code() == Code::kTryAgain) return status;
  status = WithoutHint(status, args.environment);
  if (!args.json) PrintPeople(args, found);
  for (const std::string& line : traceback.lines()) std::fprintf(stderr, "%s\n", line.c_str());
  if (status.ok()) Judge(found, warnings);
  for (const std::string& line : warnings) LogWarning(line);
  if (!args.json) return status;
  if (!status.ok()) {
    found["error"] = status.message();
    std::fprintf(stderr, "samara: %s\n", status.message().c_str());
  }
  found["traceback"] = traceback.lines();
  found["warnings"] = warnings;
  invocation.exit_code = static_cast<int>(status.code());
  PrintJson(found);
  return Status::Ok();
}

}  // namespace

void AddCheck(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand(
      "check", "make an environment, play random episodes, show its spaces, speed or error");
  auto args = std::make_shared<CheckArguments>();
  command
      ->add_option("environment", args->environment,
                   "atari/GAME or any env.id: a native id, Gymnasium's, module:Name")
      ->required();
  AddGymOptions(*command, args->overrides);
  command->add_option("--preset", args->preset, "Atari preset; 'samara list envs'")
      ->capture_default_str();
  command->add_option("--seconds", args->seconds, "how long to play, at least one episode")
      ->check(InRange(0.0, 1e6))
      ->capture_default_str();
  command->add_option("--seed", args->seed, "seed of the episodes and actions")
      ->check(CLI::Range(int64_t{0}, kSeedMax))
      ->capture_default_str();
  command->add_flag("--json", args->json, "last line: one JSON object");
  command->callback([=, &invocation] {
    invocation.run = [=, &invocation] { return RunCheck(*args, invocation); };
  });
}

}  // namespace samara
