// The keys of the GA, and what they say about the mutation power.
#include <fmt/format.h>

#include <algorithm>

#include "core/math.h"
#include "evo/ga.h"
#include "evo/genome/noise.h"

namespace samara {

void Bind(ConfigTable& table, GaConfig& c) {
  const auto grow = OnResume::kMayGrow;
  table.Add("ga.loop", &c.loop, {"uber_gpu", "uber_dist"},
            "released GPU program, or the distributed one");
  table.Add("ga.population", &c.population, {1, 10'000'000}, "genomes", "members per generation");
  table.Add("ga.parents", &c.parents, {0, 1'000'000}, "genomes",
            "truncation size; 0 = random search");
  table.Add("ga.elites", &c.elites, {0, 1'000'000}, "genomes",
            "uber_dist: kept with the fitness they had");
  table.Add("ga.episodes", &c.episodes, {1, 1000}, "episodes", "per fitness");
  table.Add("ga.validation_candidates", &c.validation_candidates, {0, 100'000}, "genomes",
            "top members validated");
  table.Add("ga.validation_episodes", &c.validation_episodes, {0, 100'000}, "episodes",
            "per candidate; 0 = none");
  table.Add("ga.test_episodes", &c.test_episodes, {0, 1'000'000}, "episodes",
            "of the elite, not counted in frames");
  table.Add("ga.test_every", &c.test_every, {0, 1'000'000}, "generations",
            "between tests; 0 = at the end only");
  table.Add("ga.elite_mode", &c.elite_mode, {"parent_slot", "member"},
            "the elite is a parent only, or also a member");
  table.Add("ga.mutation_power", &c.mutation_power, {0, kMutationPowerMax}, "",
            "sigma of a mutation");
  table.Add("ga.mutation_schedule", &c.mutation_schedule, {"constant", "linear", "exponential"},
            "of the power over frames");
  table.Add("ga.mutation_power_end", &c.mutation_power_end, {0, kMutationPowerMax}, "",
            "power at the schedule's end");
  table.Add("ga.mutation_schedule_frames", &c.mutation_schedule_frames, {1, 1e15}, "frames",
            "length of the schedule; a resumed run may raise it", grow);
  table.Add("ga.noise", &c.noise, {"normal", "quantile8", "table"},
            "kind of noise; part of a genome's identity");
  table.Add("ga.init", &c.init, {"fan_in", "unit_norm"},
            "initial scale: GPU form or distributed form");
  table.Add("ga.cache_megabytes", &c.cache_megabytes, {1, 1e7}, "MB", "ancestors kept in memory",
            OnResume::kMayChange);
  table.Add("ga.generations", &c.generations, {0, 1e9}, "generations", "budget; 0 = none", grow);
  table.Add("ga.frames", &c.frames, {0, 1e15}, "frames",
            "budget of population and validation; 0 = none", grow);
}

Status CheckSize(const GaConfig& c, const NetworkDescription& network) {
  if (c.noise == "table" && network.parameter_count > kNoiseTableSize)
    return {Code::kConfig,
            fmt::format("ga.noise=table: a table of {} values for {}'s {} parameters; expected "
                        "normal or quantile8, which have no such bound",
                        kNoiseTableSize, network.name, network.parameter_count)};
  const double episodes =
      static_cast<double>(c.population) * static_cast<double>(c.episodes) +
      static_cast<double>(c.population + 1) * static_cast<double>(c.validation_episodes);
  if (episodes < 4e9) return Status::Ok();
  return {
      Code::kConfig,
      fmt::format("ga.population={}, ga.episodes={}, ga.validation_episodes={}: {:.3g} episodes "
                  "that a generation may play, at most 4e9; lower one of them",
                  c.population, c.episodes, c.validation_episodes, episodes)};
}

bool Clamp(GaConfig& c) {
  const int64_t parents = std::min(c.parents, c.population);
  const int64_t candidates = std::min(c.validation_candidates, c.population);
  const bool changed = parents != c.parents || candidates != c.validation_candidates;
  c.parents = parents, c.validation_candidates = candidates;
  return changed;
}

float MutationPowerAt(const GaConfig& config, uint64_t frames) {
  const double v0 = config.mutation_power, v1 = config.mutation_power_end;
  const double s = std::min(
      1.0, static_cast<double>(frames) / static_cast<double>(config.mutation_schedule_frames));
  double power = v0;
  if (config.mutation_schedule != "constant" && s == 1)
    power = v1;
  else if (config.mutation_schedule == "linear")
    power = v0 + (v1 - v0) * s;
  else if (config.mutation_schedule == "exponential" && s > 0)
    power = v0 > 0 && v1 > 0 ? v0 * Exp(s * (Log(v1) - Log(v0))) : 0;
  return static_cast<float>(power);
}

}  // namespace samara
