// The keys of the GA, and what they say about the mutation power.
#include <fmt/format.h>

#include <algorithm>

#include "evo/algorithms/ga.h"
#include "evo/genome/noise.h"

namespace samara {
namespace {

constexpr EnumName<GaLoop> kLoops[] = {{GaLoop::kUberGpu, "uber_gpu"},
                                       {GaLoop::kUberDist, "uber_dist"}};
constexpr EnumName<EliteMode> kEliteModes[] = {{EliteMode::kParentSlot, "parent_slot"},
                                               {EliteMode::kMember, "member"}};

class RandomSearchConfig : public GaConfig {
 public:
  std::unique_ptr<EvolutionConfig> Clone() const override {
    return std::make_unique<RandomSearchConfig>(*this);
  }
  bool TakesInitialPolicy() const override { return false; }
  std::unique_ptr<EvolutionAlgorithm> Make(const EvolutionSetup& setup) const override {
    GaConfig without = *this;
    without.parents = 0;
    return without.Make(setup);
  }
};

}  // namespace

std::unique_ptr<EvolutionConfig> MakeGaConfig() { return std::make_unique<GaConfig>(); }
std::unique_ptr<EvolutionConfig> MakeRandomSearchConfig() {
  return std::make_unique<RandomSearchConfig>();
}

void GaConfig::Bind(ConfigTable& table) { BindRows(table, GaSelection::kByReturn); }

void GaConfig::BindRows(ConfigTable& table, GaSelection selection) {
  const bool by_return = selection == GaSelection::kByReturn;
  if (by_return)
    table.Add("ga.loop", &loop, kLoops, "released GPU program, or the distributed one");
  table.Add("ga.population", &population, {1, 10'000'000}, "genomes",
            "number of members per generation");
  if (selection != GaSelection::kByCell)
    table.Add("ga.parents", &parents, {by_return ? 0.0 : 1.0, 1'000'000}, "genomes",
              by_return ? "number of parents (truncation size); 0 = random search"
                        : "number of parents (truncation size)");
  if (by_return)
    table.Add("ga.elites", &elites, {0, 1'000'000}, "genomes",
              "uber_dist: previous parents kept with their old fitness");
  table.Add("ga.episodes", &episodes, {1, 1000}, "episodes",
            "episodes per member; fitness is the mean");
  if (by_return) {
    table.Add("ga.validation_candidates", &validation_candidates, {0, 100'000}, "genomes",
              "number of best members that are validated");
    table.Add("ga.validation_episodes", &validation_episodes, {0, 100'000}, "episodes",
              "validation episodes per candidate; 0 = no validation");
  }
  BindTest(table, "ga", budget);
  if (by_return)
    table.Add("ga.elite_mode", &elite_mode, kEliteModes,
              "the elite is a parent only, or also a member");
  table.Add("ga.mutation_power", &mutation_power, {0, kMutationPowerMax}, "",
            "standard deviation of a mutation");
  table.Add("ga.mutation_schedule", &mutation_schedule, kScheduleNames,
            "schedule of the mutation power over frames");
  table.Add("ga.mutation_power_end", &mutation_power_end, {0, kMutationPowerMax}, "",
            "mutation power at the end of the schedule");
  table.Add("ga.mutation_schedule_frames", &mutation_schedule_frames, {1, 1e15}, "frames",
            "length of the schedule", OnResume::kMustMatchAdded);
  mutation.Bind(table, "ga");
  table.Add("ga.noise", &noise, kNoiseNames, "kind of noise; part of a genome's identity");
  table.Add("ga.init", &init, kInitNames,
            "initial weights; fan_in is the GPU program's, unit_norm the distributed one's");
  table.Add("ga.cache_megabytes", &cache_megabytes, {1, 1e7}, "MB",
            "memory for parameters of ancestors", OnResume::kMayChange);
  BindBudget(table, "ga", budget);
}

Status GaConfig::Check(const NetworkDescription& network) const {
  RETURN_IF_ERROR(CheckNoise(noise, network.parameter_count));
  RETURN_IF_ERROR(mutation.Check(network));
  RETURN_IF_ERROR(
      CheckSchedule("ga.mutation_power", mutation_schedule, mutation_power, mutation_power_end));
  const double floats =
      static_cast<double>(population) * kExperienceStates *
          static_cast<double>(network.input_size()) +
      static_cast<double>(parents + 1) * static_cast<double>(network.parameter_count);
  const double megabytes = floats * sizeof(float) / (1 << 20);
  if (mutation.safe() && megabytes > static_cast<double>(cache_megabytes))
    return {Code::kConfig,
            fmt::format("ga.mutation: what ga.population={} members see, and ga.parents={}, take "
                        "{:.0f} MB; expected ga.cache_megabytes of at least that, or "
                        "ga.mutation=plain",
                        population, parents, megabytes)};
  const double all = static_cast<double>(population) * static_cast<double>(episodes) +
                     static_cast<double>(population + 1) * static_cast<double>(validation_episodes);
  return CheckEpisodes(
      all, fmt::format("ga.population={}, ga.episodes={}, ga.validation_episodes={}", population,
                       episodes, validation_episodes));
}

std::vector<std::string> GaConfig::Settle() {
  std::vector<std::string> warnings = mutation.Unused("ga");
  const auto clamp = [&](std::string_view key, int64_t& value) {
    if (value <= population) return;
    warnings.push_back(fmt::format("{}={} is clamped to ga.population={}", key, value, population));
    value = population;
  };
  clamp("ga.parents", parents);
  clamp("ga.validation_candidates", validation_candidates);
  if (mutation_schedule != Schedule::kConstant && mutation_power_end == 0 &&
      budget.frames > mutation_schedule_frames)
    warnings.push_back(fmt::format(
        "ga.frames={} goes beyond ga.mutation_schedule_frames={}: the mutation power is 0 from "
        "there on",
        budget.frames, mutation_schedule_frames));
  return warnings;
}

float MutationPowerAt(const GaConfig& config, uint64_t frames) {
  return static_cast<float>(ScheduledValue(config.mutation_schedule, config.mutation_power,
                                           config.mutation_power_end, static_cast<double>(frames),
                                           static_cast<double>(config.mutation_schedule_frames)));
}

}  // namespace samara
