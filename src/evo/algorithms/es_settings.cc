#include "evo/algorithms/es_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "evo/genome/decode.h"

namespace samara {
namespace {

constexpr uint64_t kPairsMax = 10'000'000;  // of one generation

// es.population of an es.pairs.
std::string Doubled(std::string_view pairs) {
  int64_t value = 0;
  std::from_chars(pairs.data(), pairs.data() + pairs.size(), value);
  return std::to_string(2 * value);
}

}  // namespace

void EsSettings::Bind(ConfigTable& table) {
  table.Add("es.population", &population, {2, 10'000'000}, "members",
            "number of members per generation, in pairs of a perturbation and its opposite");
  table.AddFormer("es.pairs", "es.population", "twice the number of pairs", Doubled);
  table.Add("es.episodes", &episodes, {1, 1000}, "episodes", "episodes per member");
  table.Add("es.sigma", &sigma, {1e-12, kMutationPowerMax}, "",
            "standard deviation of the perturbations");
  table.Add("es.noise", &noise, kCounterNoiseNames, "kind of noise; quantile8 is faster",
            OnResume::kMustMatchAdded);
  table.Add("es.shaping", &shaping, kShapingNames,
            "transform of fitness for the update; novelty searches: centered_rank alone",
            OnResume::kMustMatchAdded);
  table.Add("es.shift", &shift, {-1e6, 1e6}, "",
            "subtracted from the reward of each step of a member: the bonus of staying alive",
            OnResume::kMustMatchAdded);
  table.Add("es.grad_scale", &grad_scale, kGradientScaleNames,
            "divisor of the gradient: members, or members times sigma", OnResume::kMustMatchAdded);
  table.Add("es.optimizer", &ascent.kind, kAscentNames,
            "optimizer of the centre; damped: v = mu v + (1 - mu) d, classic: v = mu v + d");
  table.Add("es.momentum", &ascent.momentum, {0, 1}, "", "mu of sgd_damped and sgd_classic",
            OnResume::kMustMatchAdded);
  table.Add("es.learning_rate", &learning_rate, {0, 1000}, "", "learning rate of the optimizer");
  table.Add("es.init", &init, kInitNames, "initial weights", OnResume::kMustMatchAdded);
  table.Add("es.weight_decay", &ascent.weight_decay, {0, 1}, "",
            "part of the centre that is subtracted from the gradient");
  table.Add("es.validation_episodes", &validation_episodes, {1, 100'000}, "episodes",
            "validation episodes of each new centre");
}

void EsSettings::BindBatch(ConfigTable& table) {
  table.Add("es.action_noise", &action_noise, {0, 10}, "",
            "standard deviation of noise on the population's continuous actions",
            OnResume::kMustMatchAdded);
  table.Add("es.min_steps", &min_steps, {0, 1e9}, "steps",
            "number of steps of a generation's population; more pairs play until it has them",
            OnResume::kMustMatchAdded);
  table.Add("es.cutoff", &cutoff, {},
            "maximum length of a member's episode, in steps: env_default, a number, or "
            "adaptive:START,THRESHOLD,RATIO,MAX",
            OnResume::kMustMatchAdded);
  table.Add("es.sigma_schedule", &sigma_schedule, kScheduleNames, "schedule of sigma",
            OnResume::kMustMatchAdded);
  table.Add("es.sigma_end", &sigma_end, {0, kMutationPowerMax}, "",
            "sigma at the end of its schedule", OnResume::kMustMatchAdded);
  table.Add("es.learning_rate_schedule", &learning_rate_schedule, kScheduleNames,
            "schedule of the learning rate", OnResume::kMustMatchAdded);
  table.Add("es.learning_rate_end", &learning_rate_end, {0, 1000}, "",
            "learning rate at the end of its schedule", OnResume::kMustMatchAdded);
  table.Add("es.schedule_length", &schedule_length, {1, 1e15}, "",
            "length of both schedules, in es.schedule_unit", OnResume::kMustMatchAdded);
  table.Add("es.schedule_unit", &schedule_unit, kScheduleUnitNames, "unit of the schedules' length",
            OnResume::kMustMatchAdded);
}

std::vector<std::string> EsSettings::Unused() const {
  const EsSettings defaults;
  std::vector<std::string> lines;
  const auto note = [&lines](std::string_view key, double value, double otherwise,
                             std::string_view because) {
    if (value != otherwise)
      lines.push_back(fmt::format("es.{}={} has no effect with es.{}", key, value, because));
  };
  if (ascent.kind == AscentKind::kAdam || ascent.kind == AscentKind::kSgd)
    note("momentum", ascent.momentum, defaults.ascent.momentum,
         fmt::format("optimizer={}", NameOf<AscentKind>(kAscentNames, ascent.kind)));
  if (sigma_schedule == Schedule::kConstant)
    note("sigma_end", sigma_end, defaults.sigma_end, "sigma_schedule=constant");
  if (learning_rate_schedule == Schedule::kConstant)
    note("learning_rate_end", learning_rate_end, defaults.learning_rate_end,
         "learning_rate_schedule=constant");
  return lines;
}

Status EsSettings::Check(const NetworkDescription& network) const {
  RETURN_IF_ERROR(CheckStateBytes(network, 3));
  RETURN_IF_ERROR(CheckSchedule("es.sigma", sigma_schedule, sigma, sigma_end));
  RETURN_IF_ERROR(
      CheckSchedule("es.learning_rate", learning_rate_schedule, learning_rate, learning_rate_end));
  if (population % 2 != 0)
    return {Code::kConfig,
            fmt::format("es.population={}: members play in pairs; expected an even number",
                        population)};
  RETURN_IF_ERROR(Cutoff::Parse(cutoff).status());
  const double all = static_cast<double>(population) *
                     static_cast<double>(std::max(episodes, validation_episodes));
  return CheckEpisodes(
      all, fmt::format("es.population={}, es.episodes={}, es.validation_episodes={}", population,
                       episodes, validation_episodes));
}

Status EsSettings::CheckActions(const EnvironmentSpec& environment) const {
  if (action_noise == 0 || !environment.action.discrete) return Status::Ok();
  return {Code::kConfig,
          fmt::format("es.action_noise={}: the actions of {} are discrete; expected 0",
                      action_noise, environment.id)};
}

AscentRule EsSettings::RuleFor(const NetworkDescription& network) const {
  AscentRule rule = ascent;
  rule.evolved = network.evolved_count;
  return rule;
}

double EsSettings::Divisor(size_t count, double of_sigma) const {
  const auto n = static_cast<double>(count);
  return grad_scale == GradientScale::kTextbook ? n * of_sigma : n;
}

uint32_t EsSettings::FurtherPairs(uint64_t pairs, uint64_t steps) const {
  const auto wanted = static_cast<uint64_t>(min_steps), round = uint64_t{members() / 2};
  if (steps >= wanted || pairs >= kPairsMax) return 0;
  if (steps == 0) return static_cast<uint32_t>(round);
  const uint64_t expected = ((wanted - steps) * pairs + steps - 1) / steps;
  return static_cast<uint32_t>(std::min({expected, round, kPairsMax - pairs}));
}

namespace {

double Elapsed(ScheduleUnit unit, const EvolutionCounters& counters) {
  switch (unit) {
    case ScheduleUnit::kGenerations:
      return static_cast<double>(counters.generation);
    case ScheduleUnit::kFrames:
      return static_cast<double>(counters.frames);
    case ScheduleUnit::kSteps:
      break;
  }
  return static_cast<double>(counters.steps);
}

}  // namespace

double EsSettings::SigmaAfter(const EvolutionCounters& counters) const {
  return ScheduledValue(sigma_schedule, sigma, sigma_end, Elapsed(schedule_unit, counters),
                        static_cast<double>(schedule_length));
}

double EsSettings::LearningRateAfter(const EvolutionCounters& counters) const {
  return ScheduledValue(learning_rate_schedule, learning_rate, learning_rate_end,
                        Elapsed(schedule_unit, counters), static_cast<double>(schedule_length));
}

}  // namespace samara
