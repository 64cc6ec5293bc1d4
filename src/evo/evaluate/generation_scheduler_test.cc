// Order in which tasks are claimed; speculative validation leaves no trace.
#include "evo/evaluate/generation_scheduler.h"

#include <algorithm>
#include <cmath>

#include "evo/evaluate/evaluate_test_util.h"

namespace samara::generation_scheduler_test {
namespace {

constexpr uint32_t kMembers = 6, kElite = kMembers, kPopulation = kMembers, kEpisodes = 2;

// Six members, two episodes of validation for the best one and the old elite.
GenerationPlan Plan() {
  GenerationPlan plan;
  plan.population.resize(kPopulation);
  plan.validation_episodes = kEpisodes;
  plan.elite_frames = 50;
  plan.candidates = [](std::span<const double> fitness) {
    const auto known = [&](uint32_t i) { return std::isnan(fitness[i]) ? -HUGE_VAL : fitness[i]; };
    uint32_t best = 0;
    for (uint32_t i = 1; i < fitness.size(); ++i)
      if (known(i) > known(best)) best = i;
    return std::vector<uint32_t>{best, kElite};
  };
  plan.validation = [](uint32_t individual, uint32_t episode) {
    return Task{{individual, 0}, Role::kEvaluate, {.seed = episode}};
  };
  return plan;
}

uint32_t Validation(uint32_t individual, uint32_t episode) {
  return kPopulation + individual * kEpisodes + episode;
}

EpisodeResult Fitness(double fitness, uint64_t frames = 10) {
  return {.fitness = fitness, .frames = frames, .steps = 1};
}

std::vector<uint32_t> ClaimAll(GenerationWork& work) {
  std::vector<uint32_t> claimed;
  while (const auto index = work.Claim()) claimed.push_back(*index);
  return claimed;
}

using Indices = std::vector<uint32_t>;

TEST(GenerationWorkTest, WithoutSpeculationWhatIsClaimedDependsOnNoResult) {
  GenerationPlan plan = Plan();
  plan.speculate = false;
  GenerationWork work(std::move(plan), nullptr);
  for (uint32_t i = 0; i < kMembers; ++i) EXPECT_EQ(work.Claim(), i);
  EXPECT_EQ(work.Claim(), Validation(kElite, 0));
  for (uint32_t i = 0; i + 1 < kMembers; ++i) work.Post(i, Fitness(i));
  EXPECT_EQ(ClaimAll(work), (Indices{Validation(kElite, 1)}));
  work.Post(kMembers - 1, Fitness(0));
  EXPECT_EQ(ClaimAll(work), (Indices{Validation(4, 0), Validation(4, 1)}));
}

TEST(GenerationWorkTest, IdleSlotsValidateTheEliteAndTheBestSoFar) {
  GenerationWork work(Plan(), nullptr);
  for (uint32_t i = 0; i < kMembers; ++i) EXPECT_EQ(work.Claim(), i);
  // no member has finished: only the elite is sure of its place
  EXPECT_EQ(ClaimAll(work), (Indices{Validation(kElite, 0), Validation(kElite, 1)}));
  work.Post(2, Fitness(5));
  EXPECT_EQ(ClaimAll(work), (Indices{Validation(2, 0), Validation(2, 1)}));
  const Task task = work.TaskOf(Validation(2, 1));
  EXPECT_EQ(task.policy, (PolicyHandle{2, 0}));
  EXPECT_EQ(task.role, Role::kEvaluate);
  EXPECT_EQ(task.episode.seed, 1U);
  // a worse one changes nothing, a better one takes the place
  work.Post(0, Fitness(4));
  EXPECT_TRUE(ClaimAll(work).empty());
  EXPECT_TRUE(work.Wanted(Validation(2, 0)));
  work.Post(4, Fitness(6));
  EXPECT_FALSE(work.Wanted(Validation(2, 0)));
  EXPECT_TRUE(work.Wanted(Validation(kElite, 0)));
  EXPECT_TRUE(work.Wanted(5));
  EXPECT_EQ(ClaimAll(work), (Indices{Validation(4, 0), Validation(4, 1)}));
}

TEST(GenerationWorkTest, NoCandidateIsValidatedWhileThePopulationHasEpisodesToClaim) {
  GenerationWork work(Plan(), nullptr);
  for (uint32_t i = 0; i < kMembers; ++i) {
    EXPECT_EQ(work.Claim(), i);
    if (i + 1 < kMembers) work.Post(i, Fitness(i));
  }
  // the longest of what is certain comes first
  EXPECT_EQ(ClaimAll(work), (Indices{Validation(kElite, 0), Validation(kElite, 1), Validation(4, 0),
                                     Validation(4, 1)}));
}

TEST(GenerationWorkTest, DroppedEpisodesCountForNothing) {
  GenerationWork work(Plan(), nullptr);
  std::map<Phase, Indices> seen;
  work.OnPost(
      [&](Phase phase, uint32_t index, const EpisodeResult&) { seen[phase].push_back(index); });
  ClaimAll(work);
  work.Post(1, Fitness(1));
  ClaimAll(work);
  work.Post(Validation(1, 0), Fitness(100, 1000));  // played to its end before it was dropped
  EXPECT_EQ(work.counts().frames, 10U);
  for (const uint32_t i : {0, 2, 3, 4}) work.Post(i, Fitness(-1));
  EXPECT_FALSE(work.counts().validating);
  EXPECT_EQ(work.counts().done, 5U);
  EXPECT_EQ(work.counts().total, 6U);
  work.Post(5, Fitness(2, 30));
  EXPECT_TRUE(work.WaitForPopulation());
  EXPECT_EQ(work.means().fitness, (std::vector<double>{-1, 1, -1, -1, -1, 2}));
  EXPECT_EQ(work.means().frames, (std::vector<double>{10, 10, 10, 10, 10, 30}));
  work.Post(Validation(1, 1), Fitness(100, 1000));  // broken off too late
  EXPECT_EQ(work.counts().frames, 80U);
  EXPECT_TRUE(work.counts().validating);
  EXPECT_EQ(work.counts().done, 0U);
  EXPECT_EQ(work.counts().total, 4U);
  // the elite's are claimed already
  EXPECT_EQ(ClaimAll(work), (Indices{Validation(5, 0), Validation(5, 1)}));
  for (const uint32_t individual : {5U, kElite}) {
    EXPECT_FALSE(work.Finished());
    work.Post(Validation(individual, 1), Fitness(7, 1));
    work.Post(Validation(individual, 0), Fitness(8, 2));
    work.Post(Validation(individual, 0), Fitness(9, 3));  // a duplicate
  }
  EXPECT_TRUE(work.Finished());
  EXPECT_TRUE(work.Complete());
  EXPECT_EQ(work.counts().frames, 86U);
  EXPECT_EQ(work.FramesPlayed(), 86U);
  EXPECT_EQ(work.ValidationOf(5)[0].fitness, 8);
  EXPECT_EQ(work.ValidationOf(5)[1].fitness, 7);
  EXPECT_EQ(seen[Phase::kPopulation], (Indices{1, 0, 2, 3, 4, 5}));
  EXPECT_EQ(seen[Phase::kValidation], (Indices{2, 3, 11, 10, 13, 12}));
}

TEST(GenerationWorkTest, KnownResultsAreNotPlayedAgainAndDecideNothingElse) {
  ResultsByIndex population, validation;
  for (uint32_t i = 0; i < kMembers; ++i) population[i] = Fitness(i);
  for (const uint32_t individual : {1U, 5U, kElite})  // 1 was speculative
    validation[individual * kEpisodes] = Fitness(individual);
  validation[4'000'000'000] = population[4'000'000'000] = Fitness(1);
  GenerationWork complete(Plan(), nullptr, population, validation);
  EXPECT_TRUE(complete.WaitForPopulation());
  EXPECT_EQ(complete.counts().done, 2U);
  EXPECT_EQ(ClaimAll(complete), (Indices{Validation(kElite, 1), Validation(5, 1)}));
  population.erase(3);
  GenerationWork tail(Plan(), nullptr, population, validation);
  EXPECT_EQ(ClaimAll(tail), (Indices{3, Validation(kElite, 1), Validation(5, 1)}));
  complete.Post(Validation(5, 1), Fitness(1)), complete.Post(Validation(kElite, 1), Fitness(1));
  EXPECT_TRUE(complete.Complete());
  EXPECT_EQ(complete.ValidationOf(5)[0].fitness, 5);
  EXPECT_EQ(complete.counts().frames, 100U);
  EXPECT_EQ(complete.FramesPlayed(), 20U);
}

TEST(GenerationWorkTest, AMemberHasAPlaceOnceAllItsEpisodesAreIn) {
  GenerationPlan plan = Plan();
  plan.population.resize(2 * kMembers), plan.episodes = 2;
  for (Task& task : plan.population) task.frames_expected = 1;
  plan.population[7].frames_expected = 2;
  GenerationWork work(plan, nullptr);
  EXPECT_EQ(work.Claim(), 7U);
  EXPECT_EQ(ClaimAll(work).size(), 11U + 2);
  work.Post(4, Fitness(3));
  EXPECT_TRUE(ClaimAll(work).empty());
  work.Post(5, Fitness(4, 20));
  EXPECT_EQ(ClaimAll(work), (Indices{12 + 4, 12 + 5}));
  EXPECT_EQ(work.means().fitness[2], 3.5);
  EXPECT_EQ(work.means().frames[2], 15);
  EXPECT_TRUE(std::isnan(work.means().fitness[3]));
}

TEST(GenerationWorkTest, WithoutValidationItEndsWithThePopulation) {
  GenerationPlan plan = Plan();
  plan.validation_episodes = 0;
  GenerationWork work(plan, nullptr);
  EXPECT_EQ(ClaimAll(work).size(), kMembers);
  for (uint32_t i = 0; i < kMembers; ++i) {
    EXPECT_FALSE(work.Finished());
    EXPECT_TRUE(work.Wanted(i));
    work.Post(i, Fitness(i));
  }
  EXPECT_TRUE(work.Complete());
  EXPECT_FALSE(work.Wanted(0));
}

TEST(GenerationWorkTest, AStopAndAFailureEndTheWait) {
  bool stop = false;
  GenerationWork work(Plan(), [&] { return stop; });
  EXPECT_EQ(work.Claim(), 0U);
  stop = true;
  EXPECT_EQ(work.Claim(), std::nullopt);
  EXPECT_TRUE(work.Finished());
  EXPECT_FALSE(work.Wanted(0));
  work.EvaluatorIsDone();
  EXPECT_FALSE(work.WaitForPopulation());
  EXPECT_FALSE(work.Complete());
}

}  // namespace
}  // namespace samara::generation_scheduler_test
