#include "evo/algorithms/generation_phases.h"

#include <bit>

#include "core/clock.h"

namespace samara {

std::vector<uint64_t> NoiseKeys(const GenerationPlayer& player, uint64_t count) {
  std::vector<uint64_t> keys;
  keys.reserve(count);
  for (uint64_t k = 0; k < count; ++k) keys.push_back(player.Key(Purpose::kMutation, k));
  return keys;
}

std::vector<Task> PopulationTasks(const GenerationPlayer& player, uint64_t members,
                                  size_t episodes) {
  std::vector<Task> tasks;
  tasks.reserve(members * episodes);
  for (uint64_t i = 0; i < members; ++i)
    for (size_t e = 0; e < episodes; ++e)
      tasks.push_back(player.PopulationTask(static_cast<uint32_t>(i), e));
  return tasks;
}

std::vector<float> MemberOf(const ParameterSource& members, uint64_t i, size_t count) {
  std::vector<float> parameters(count);
  members.Write({static_cast<uint32_t>(i), 0}, parameters);
  return parameters;
}

Result<std::vector<EpisodeResult>> PlayMembers(GenerationPlayer& player, std::vector<Task> tasks,
                                               size_t episodes, const ParameterSource& members,
                                               size_t episodes_total, const StopToken& stop,
                                               EvolutionCounters& next, GenerationReport& report,
                                               std::function<void(EpisodeResult&)> reduce) {
  const SteadyTime start = Now();
  GenerationPlan plan;
  plan.episodes = episodes;
  plan.population = std::move(tasks);
  plan.reduce = std::move(reduce);
  GenerationPlayer::Running playing(player, std::move(plan), members, episodes_total, stop);
  RETURN_IF_ERROR(playing.Play());
  const auto population = playing.work().population();
  std::vector<EpisodeResult> played(population.begin(), population.end());
  next.Count(played);
  report.AddPopulation(played, episodes);
  report.seconds_population += SecondsSince(start);
  return played;
}

std::vector<double> MeanFitness(std::span<const EpisodeResult> played, size_t episodes) {
  EpisodeMeans means;
  for (size_t i = 0; i < played.size(); i += episodes) means.Add(played.subspan(i, episodes));
  return std::move(means.fitness);
}

std::vector<double> ShiftedFitness(std::vector<double> fitness,
                                   std::span<const EpisodeResult> played, double shift) {
  const size_t episodes = played.size() / fitness.size();
  for (size_t i = 0; i < played.size(); ++i)
    fitness[i / episodes] -= shift * played[i].steps / static_cast<double>(episodes);
  return fitness;
}

Status TestPolicy(GenerationPlayer& player, std::span<const float> policy, size_t episodes,
                  const StopToken& stop, EvolutionCounters& next, GenerationReport& report) {
  const SteadyTime start = Now();
  ASSIGN_OR_RETURN(const auto tested, player.Test(FixedParameters(policy), episodes, stop));
  for (const EpisodeResult& r : tested) {
    report.test_returns.push_back(r.fitness);
    report.frames_test += r.frames;
  }
  next.frames_test += report.frames_test;
  report.seconds_test = SecondsSince(start);
  return Status::Ok();
}

Result<double> ValidateAndTest(GenerationPlayer& player, std::span<const float> centre,
                               uint32_t individual, size_t validation_episodes,
                               size_t test_episodes, const StopToken& stop, EvolutionCounters& next,
                               GenerationReport& report) {
  const FixedParameters policy(centre);
  const SteadyTime validation = Now();
  ASSIGN_OR_RETURN(const auto validated,
                   player.Validate(policy, individual, validation_episodes, stop));
  next.Count(validated);
  report.seconds_validation += SecondsSince(validation);
  report.validated = validated.size();

  RETURN_IF_ERROR(TestPolicy(player, centre, test_episodes, stop, next, report));
  return MeanFitness(validated, validated.size())[0];
}

void SetFrames(const GenerationPlayer& player, uint64_t frames, GenerationReport& report) {
  report.frames = frames, report.frames_reused = player.frames_reused();
}

Digest HashOf(std::span<const double> fitness, std::span<const float> centre) {
  Sha256 hash;
  for (const double f : fitness) hash.UpdateU64(std::bit_cast<uint64_t>(f));
  hash.Update(std::as_bytes(centre));
  return hash.Finish();
}

void PutCounters(ByteWriter& out, const EvolutionCounters& c) {
  out.Put(c.generation).Put(c.frames).Put(c.frames_test).Put(c.steps).Put(c.episodes);
}

EvolutionCounters GetCounters(ByteReader& in) {
  EvolutionCounters c;
  c.generation = in.Get<uint64_t>();
  c.frames = in.Get<uint64_t>();
  c.frames_test = in.Get<uint64_t>();
  c.steps = in.Get<uint64_t>();
  c.episodes = in.Get<uint64_t>();
  return c;
}

}  // namespace samara
