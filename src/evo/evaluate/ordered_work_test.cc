#include "evo/evaluate/ordered_work.h"

#include <gtest/gtest.h>

#include "evo/evaluate/evaluate_test_util.h"

namespace samara::ordered_work_test {
namespace {

// A task whose seed follows from the results merged when it was made.
struct Chain {
  explicit Chain(size_t window, size_t tasks = 60) {
    plan = {.tasks = tasks,
            .window = window,
            .make =
                [this](uint32_t i) {
                  EXPECT_EQ(i, made.size());
                  made.push_back(merged.size());
                  return Task{.policy = {i, 0}, .episode = {.seed = sum + i}};
                },
            .merge =
                [this](uint32_t i, const EpisodeResult& result, SharedExperience) {
                  EXPECT_EQ(i, merged.size());
                  merged.push_back(result.fitness);
                  sum = sum * 31 + static_cast<uint64_t>(result.fitness);
                }};
  }
  OrderedWork::Plan plan;
  std::vector<size_t> made;  // results merged when task i was made
  std::vector<double> merged;
  uint64_t sum = 0;
};

EpisodeResult Score(const Task& task, std::span<const float>) {
  return {.fitness = static_cast<double>(DeriveKey(task.episode.seed, {}) % 1000), .steps = 1};
}

TEST(OrderedWork, OrderOfResultsDecidesNothing) {
  for (const size_t window : {1u, 4u, 100u}) {
    std::vector<double> expected;
    for (const auto& [seed, threads, batch] :
         {std::tuple{1, 1, 1}, {2, 3, 1}, {3, 2, 5}, {4, 8, 3}}) {
      Chain chain(window);
      OrderedWork work(chain.plan, nullptr);
      DisorderlyEvaluator evaluator(1, Score,
                                    {.seed = static_cast<uint64_t>(seed),
                                     .threads = static_cast<uint32_t>(threads),
                                     .batch = static_cast<uint32_t>(batch),
                                     .delay_us_max = 50});
      const float parameter = 0;
      ASSERT_TRUE(evaluator.Play(FixedParameters({&parameter, 1}), work).ok());
      ASSERT_TRUE(work.Complete());
      for (size_t i = 0; i < 60; ++i) ASSERT_EQ(chain.made[i], i < window ? 0 : i - window + 1);
      if (expected.empty()) expected = chain.merged;
      EXPECT_EQ(chain.merged, expected) << window;
    }
  }
}

TEST(OrderedWork, KnownResultsAreNotPlayedAgain) {
  Chain all(4), rest(4);
  OrderedWork work(all.plan, nullptr);
  FakeEvaluator first(1, Score);
  const float parameter = 0;
  ASSERT_TRUE(first.Play(FixedParameters({&parameter, 1}), work).ok());
  const auto results = work.TakeResults();
  ResultsByIndex known;
  for (const uint32_t i : {0, 1, 2, 3, 4, 7, 20, 59}) known[i] = results[i];

  OrderedWork again(rest.plan, nullptr, known);
  FakeEvaluator second(1, Score);
  ASSERT_TRUE(second.Play(FixedParameters({&parameter, 1}), again).ok());
  EXPECT_TRUE(again.Complete());
  EXPECT_EQ(rest.merged, all.merged);
  EXPECT_EQ(second.played(), 52u);
}

TEST(OrderedWork, StopEndsIt) {
  Chain chain(4);
  bool stopped = false;
  OrderedWork work(chain.plan, [&] { return stopped; });
  ASSERT_EQ(work.Claim(), 0u);
  stopped = true;
  EXPECT_EQ(work.Claim(), std::nullopt);
  EXPECT_TRUE(work.Finished());
  EXPECT_FALSE(work.Complete());
}

}  // namespace
}  // namespace samara::ordered_work_test
