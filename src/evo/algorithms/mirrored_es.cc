#include "evo/algorithms/mirrored_es.h"

#include <algorithm>

#include "core/clock.h"
#include "evo/algorithms/generation_phases.h"

namespace samara {

MirroredEs::MirroredEs(const EsSettings& es, const EvolutionSetup& setup)
    : EvolutionAlgorithm(setup),
      es_(es),
      cutoff_(Cutoff::Parse(es.cutoff).ValueOrThrow()),
      noise_(GetNoise(es.noise)),
      frames_per_step_(setup.evaluator.spec().frames_per_step) {}

Result<MirroredEs::Population> MirroredEs::Play(std::span<const float> centre, const PlayRule& rule,
                                                const StopToken& stop, EvolutionCounters& next,
                                                GenerationReport& report) {
  const auto episodes = static_cast<size_t>(es_.episodes);
  const uint64_t steps_before = next.steps;
  const auto members = [&](std::span<const uint64_t> keys) {
    return MirroredMembers(noise_, centre, rule.sigma, keys, network_.evolved_count);
  };
  Population population{.keys = NoiseKeys(player_, es_.pairs())};
  std::vector<uint64_t>& keys = population.keys;
  std::vector<EpisodeResult>& played = population.episodes;
  ASSIGN_OR_RETURN(played,
                   PlayMembers(player_, Tasks(rule, 0, es_.members()), episodes, members(keys),
                               EpisodesOfNext(), stop, next, report, rule.reduce));
  const SteadyTime further = Now();
  while (const uint32_t more = es_.FurtherPairs(keys.size(), next.steps - steps_before)) {
    const std::vector<Task> tasks = Tasks(rule, 2 * keys.size(), 2 * (keys.size() + more));
    keys = NoiseKeys(player_, keys.size() + more);
    ASSIGN_OR_RETURN(const auto results,
                     player_.PlayFurther(tasks, static_cast<uint32_t>(played.size()), members(keys),
                                         stop, rule.reduce));
    played.insert(played.end(), results.begin(), results.end());
    report.AddPopulation(results, episodes);
    next.Count(results);
  }
  report.seconds_population += SecondsSince(further);

  const auto capped = static_cast<uint64_t>(std::ranges::count_if(
      played, [&](const EpisodeResult& r) { return int64_t{r.steps} >= rule.cutoff; }));
  population.cutoff = cutoff_.Next(rule.cutoff, capped, played.size());
  return population;
}

std::vector<float> MirroredEs::Member(std::span<const float> centre, double sigma,
                                      uint64_t i) const {
  const uint64_t key = player_.Key(Purpose::kMutation, i / 2);
  return MemberOf(MirroredMembers(noise_, centre, sigma, {&key, 1}, network_.evolved_count), i % 2,
                  network_.parameter_count);
}

std::vector<Task> MirroredEs::Tasks(const PlayRule& rule, uint64_t first, uint64_t end) const {
  const auto episodes = static_cast<uint64_t>(es_.episodes);
  std::vector<Task> tasks;
  for (uint64_t i = first; i < end; ++i) {
    for (uint64_t e = 0; e < episodes; ++e) {
      Task task = player_.PopulationTask(static_cast<uint32_t>(i), e);
      task.episode.frames_max =
          ShorterLimit(task.episode.frames_max, rule.cutoff * frames_per_step_);
      task.episode.action_noise = static_cast<float>(es_.action_noise);
      if (rule.adjust) rule.adjust(i * episodes + e, task);
      tasks.push_back(task);
    }
  }
  return tasks;
}

}  // namespace samara
