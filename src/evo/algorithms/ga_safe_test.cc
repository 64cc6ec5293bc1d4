// The Deep GA with safe mutations.
#include <gtest/gtest.h>

#include "evo/algorithms/ga.h"
#include "evo/algorithms/ga_ns.h"
#include "evo/algorithms/ga_test_util.h"

namespace samara::ga_safe_test {
namespace {

GaConfig Small(MutationKind kind, GaLoop loop, EliteMode mode) {
  GaConfig config;
  config.population = 12, config.parents = 4, config.episodes = 2;
  config.validation_candidates = 3, config.validation_episodes = 2;
  config.budget.test_episodes = 2;
  config.loop = loop, config.elite_mode = mode;
  config.mutation_power = 0.1;
  config.mutation.kind = kind;
  return config;
}

GaState Played(const GaConfig& config, uint32_t threads, bool resumes) {
  const NetworkDescription network = Network("mlp-4-tanh", 4, 2);
  const auto factory = Native("CartPole-v1");
  const auto evaluator =
      MakeDirectEvaluator(factory, ModelFor(factory, "mlp-4-tanh"), threads).ValueOrThrow();
  auto ga = std::make_unique<DeepGa>(config, 5, network, *evaluator, EpisodeRule());
  for (int i = 0; i < 4; ++i) {
    const auto report = ga->Step(nullptr);
    EXPECT_TRUE(report.ok()) << report.status().message();
    if (!resumes) continue;
    const GaState state = ga->state();
    EXPECT_EQ(GaState::Decode(state.Encode()).ValueOrThrow().Encode(), state.Encode());
    ga = std::make_unique<DeepGa>(config, 5, network, *evaluator, EpisodeRule());
    ga->Restore(state);
  }
  return ga->state();
}

TEST(DeepGaWithSafeMutations, ThreadsAndKillsDecideNothing) {
  for (const MutationKind kind : {MutationKind::kSmR, MutationKind::kSmGAbs}) {
    for (const auto& [loop, mode] : {std::pair{GaLoop::kUberGpu, EliteMode::kParentSlot},
                                     {GaLoop::kUberGpu, EliteMode::kMember},
                                     {GaLoop::kUberDist, EliteMode::kParentSlot}}) {
      const GaConfig config = Small(kind, loop, mode);
      const GaState state = Played(config, 1, false);
      EXPECT_TRUE(std::ranges::any_of(state.parents,
                                      [](const Parent& parent) { return !parent.genome.plain(); }));
      EXPECT_EQ(Played(config, 3, false).Encode(), state.Encode());
      EXPECT_EQ(Played(config, 2, true).Encode(), state.Encode()) << static_cast<int>(kind);
    }
  }
}

// Settings of the hard maze: the novelty search of the GA breeds in the same way.
std::string PlayedForNovelty(uint32_t threads, bool resumes, const InitialPolicy* initial) {
  const auto factory = Native("HardMaze");
  const auto model = ModelFor(factory, "mlp-4-tanh");
  const NetworkDescription network = model->kernel().network();
  auto config = MakeGaNsConfig();
  ConfigTable table;
  config->Bind(table);
  for (const auto& [key, value] : {std::pair{"ga.population", "8"},
                                   {"ga.parents", "3"},
                                   {"ga.mutation", "sm_g_abs"},
                                   {"ga.mutation_power", "0.1"},
                                   {"novelty.neighbours", "3"},
                                   {"novelty.archive_probability", "0.3"},
                                   {"ga.test_episodes", "1"}})
    EXPECT_TRUE(table.Set(key, value).ok()) << key;
  const auto evaluator =
      MakeDirectEvaluator(factory, ModelFor(factory, "mlp-4-tanh"), threads).ValueOrThrow();
  const auto make = [&] { return config->Make({5, network, *evaluator, {}, initial}); };
  auto ga = make();
  for (int i = 0; i < 3; ++i) {
    const auto report = ga->Step(nullptr);
    EXPECT_TRUE(report.ok()) << report.status().message();
    if (!resumes) continue;
    auto again = make();
    EXPECT_TRUE(again->RestoreArchive(ga->EncodeArchive(0)).ok());
    EXPECT_TRUE(again->RestoreState(ga->EncodeState()).ok());
    ga = std::move(again);
  }
  return ga->EncodeState();
}

TEST(DeepGaWithSafeMutations, NoveltySearchTakesThem) {
  const std::string state = PlayedForNovelty(1, false, nullptr);
  EXPECT_EQ(PlayedForNovelty(3, false, nullptr), state);
  EXPECT_EQ(PlayedForNovelty(2, true, nullptr), state);
}

TEST(DeepGaWithSafeMutations, BeginWithAPolicy) {
  const auto model = ModelFor(Native("HardMaze"), "mlp-4-tanh");
  std::vector<float> parameters(model->kernel().network().parameter_count);
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i] = static_cast<float>(i % 7) / 8;
  const InitialPolicy policy = MakeInitialPolicy(std::move(parameters));
  const std::string state = PlayedForNovelty(1, false, &policy);
  EXPECT_NE(PlayedForNovelty(1, false, nullptr), state);
  EXPECT_EQ(PlayedForNovelty(2, true, &policy), state);
}

TEST(DeepGaWithSafeMutations, TheEliteIsRecordedWithItsParameters) {
  const GaConfig config = Small(MutationKind::kSmGAbs, GaLoop::kUberGpu, EliteMode::kParentSlot);
  const GaState state = Played(config, 2, false);
  EXPECT_EQ(state.elite->genome.plain(), state.elite_parameters.empty());
  const auto best = ParametersOf(state.Summary().best, Network("mlp-4-tanh", 4, 2));
  EXPECT_TRUE(best.ok()) << best.status().message();
}

TEST(DeepGaWithSafeMutations, StatesOfPlainRunsKeepTheirVersion) {
  const GaConfig config = Small(MutationKind::kPlain, GaLoop::kUberGpu, EliteMode::kParentSlot);
  EXPECT_EQ(Played(config, 1, false).Encode()[0], 2);
}

TEST(DeepGaWithSafeMutations, WhatThePopulationSeesIsBounded) {
  GaConfig config = Small(MutationKind::kSmR, GaLoop::kUberGpu, EliteMode::kParentSlot);
  config.population = 100'000, config.cache_megabytes = 100;
  const Status refused = config.Check(Network("linear", 40, 2));
  EXPECT_EQ(refused.code(), Code::kConfig);
  EXPECT_NE(refused.message().find("ga.cache_megabytes"), std::string::npos);
  config.mutation.kind = MutationKind::kPlain;
  EXPECT_TRUE(config.Check(Network("linear", 40, 2)).ok());
}

}  // namespace
}  // namespace samara::ga_safe_test
