// Every algorithm that begins from a policy.
#include <gtest/gtest.h>

#include <map>

#include "evo/algorithms/es.h"
#include "evo/algorithms/ga_test_util.h"
#include "evo/algorithms/registry.h"
#include "evo/genome/decode.h"
#include "evo/genome/noise.h"

namespace samara::initial_policy_test {
namespace {

EpisodeResult ByMember(const Task& task, std::span<const float>) {
  EpisodeResult result{.fitness = static_cast<double>(task.policy.id % 7), .frames = 1, .steps = 1};
  result.position = {static_cast<float>(task.policy.id % 5), 1};
  return result;
}

GaConfig SmallGa() {
  GaConfig c;
  c.population = 6, c.parents = 2, c.validation_candidates = 2, c.validation_episodes = 1;
  c.budget.test_episodes = 0;
  c.mutation_power = 0.25;
  return c;
}

InitialPolicy SomePolicy(const NetworkDescription& network) {
  std::vector<float> parameters(network.parameter_count);
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i] = static_cast<float>(i) / 8;
  return MakeInitialPolicy(std::move(parameters));
}

TEST(InitialPolicyTest, EveryAlgorithmThatTakesOneGoesOnFromItsState) {
  const NetworkDescription network = Network("linear", 3, 2);
  const InitialPolicy policy = SomePolicy(network);
  size_t taken = 0;
  for (const EvolutionRow& row : EvolutionAlgorithms()) {
    auto config = row.config();
    if (!config->TakesInitialPolicy()) continue;
    ++taken;
    ConfigTable table;
    config->Bind(table);
    if (table.Find("map.low") != nullptr) {
      ASSERT_TRUE(table.Set("map.low", "0,0").ok() && table.Set("map.high", "1,1").ok());
    }
    config->budget.test_episodes = 0;
    FakeEvaluator evaluator(network.parameter_count, ByMember);
    evaluator.SetPosition(2);
    EpisodeRule episodes;
    episodes.record = config->Records(evaluator.spec(), network).ValueOrThrow();
    const auto with = config->Make({1, network, evaluator, episodes, &policy});
    const auto without = config->Make({1, network, evaluator, episodes});
    ASSERT_TRUE(with->Step(nullptr).ok() && without->Step(nullptr).ok()) << row.name;
    EXPECT_NE(with->EncodeState(), without->EncodeState()) << row.name;
    const auto again = config->Make({1, network, evaluator, episodes, &policy});
    ASSERT_TRUE(again->RestoreArchive(with->EncodeArchive(0)).ok()) << row.name;
    ASSERT_TRUE(again->RestoreState(with->EncodeState()).ok()) << row.name;
    ASSERT_TRUE(with->Step(nullptr).ok() && again->Step(nullptr).ok()) << row.name;
    EXPECT_EQ(with->EncodeState(), again->EncodeState()) << row.name;
    for (const NamedCandidate& named : with->Candidates())
      EXPECT_TRUE(ParametersOf(named.candidate, network, &policy).ok()) << row.name << named.name;
  }
  EXPECT_GE(taken, 2U);
}

TEST(InitialPolicyTest, TheGaBreedsFromItAndItDefendsItsPlace) {
  const NetworkDescription network = Network("linear", 3, 2);
  const InitialPolicy policy = SomePolicy(network);
  const GaConfig config = SmallGa();
  std::map<uint32_t, std::vector<float>> played;
  FakeEvaluator evaluator(network.parameter_count, [&](const Task& task, auto parameters) {
    played[task.policy.id].assign(parameters.begin(), parameters.end());
    // in validation only the policy itself, number 6, is good
    return EpisodeResult{.fitness = task.policy.id == 6 ? 100.0 : 1.0, .frames = 1, .steps = 1};
  });
  const auto ga = config.Make({1, network, evaluator, {}, &policy});
  ASSERT_EQ(ga->MembersOfNext(), 6U);
  for (uint64_t i = 0; i < 6; ++i) {
    const auto member = std::get<Genome>(ga->MemberOfNext(i));
    EXPECT_EQ(member.init, InitKind::kPolicy);
    EXPECT_EQ(member.initial, policy.key);
    ASSERT_EQ(member.mutations.size(), 1U);
  }
  std::vector<std::vector<float>> expected;
  for (uint64_t i = 0; i < 6; ++i) {
    const auto member = std::get<Genome>(ga->MemberOfNext(i));
    auto& child = expected.emplace_back(policy.parameters.size());
    GetNoise(member.noise).Add(member.mutations[0].key, 0.25F, 0, policy.parameters, child);
  }
  ASSERT_TRUE(ga->Step(nullptr).ok());
  for (uint32_t i = 0; i < 6; ++i) EXPECT_EQ(played[i], expected[i]) << i;
  EXPECT_EQ(played[6], policy.parameters);
  EXPECT_EQ(*ParametersOf(ga->summary().best, network, &policy), policy.parameters);
  EXPECT_EQ(ga->summary().best_mean, 100);
  const auto candidates = ga->Candidates();
  ASSERT_EQ(candidates.size(), 3U);
  EXPECT_EQ(candidates[0].name, "elite");
  EXPECT_EQ(candidates[1].name, "parent:0");
  EXPECT_EQ(candidates[2].name, "parent:1");
}

TEST(InitialPolicyTest, AGenomeOfTheSameNoiseIsContinuedAsASeedList) {
  const NetworkDescription network = Network("linear", 3, 2);
  Genome genome{NoiseKind::kNormal, InitKind::kUnitNorm, 9, {{5, 0.5F}}};
  std::vector<float> parameters(network.parameter_count);
  DecodeParameters(genome, network, parameters);
  const InitialPolicy policy = MakeInitialPolicy(parameters, genome);
  FakeEvaluator evaluator(network.parameter_count, ByMember);
  GaConfig config = SmallGa();
  const auto child = [&] {
    return std::get<Genome>(config.Make({1, network, evaluator, {}, &policy})->MemberOfNext(0));
  };
  EXPECT_EQ(child().init, InitKind::kUnitNorm);
  EXPECT_EQ(child().initial, 9U);
  EXPECT_EQ(child().mutations.size(), 2U);
  config.noise = NoiseKind::kQuantile8;  // one genome draws one kind of noise
  EXPECT_EQ(child().init, InitKind::kPolicy);
  EXPECT_EQ(child().mutations.size(), 1U);
}

TEST(InitialPolicyTest, AStateWithoutItsPolicyIsRefused) {
  const NetworkDescription network = Network("linear", 3, 2);
  const InitialPolicy policy = SomePolicy(network);
  const GaConfig config = SmallGa();
  FakeEvaluator evaluator(network.parameter_count, ByMember);
  const auto ga = config.Make({1, network, evaluator, {}, &policy});
  ASSERT_TRUE(ga->Step(nullptr).ok());
  const std::string state = ga->EncodeState();
  const Status missing = config.Make({1, network, evaluator, {}})->RestoreState(state);
  EXPECT_EQ(missing.code(), Code::kBadData);
  EXPECT_EQ(missing.message(),
            "genome: begins from a policy that is stored in its run's folder only");
  std::vector<float> others = policy.parameters;
  others[0] += 1;
  const InitialPolicy other = MakeInitialPolicy(others);
  EXPECT_FALSE(config.Make({1, network, evaluator, {}, &other})->RestoreState(state).ok());
  EXPECT_FALSE(ParametersOf(ga->summary().best, network).ok());
  EXPECT_TRUE(ParametersOf(ga->summary().best, network, &policy).ok());
}

TEST(InitialPolicyTest, RandomSearchTakesNone) {
  EXPECT_FALSE(MakeRandomSearchConfig()->TakesInitialPolicy());
  GaConfig without;
  without.parents = 0;
  EXPECT_FALSE(without.TakesInitialPolicy());
}

TEST(InitialPolicyTest, TheCentreOfAnEvolutionStrategyBeginsThere) {
  const NetworkDescription network = Network("linear", 3, 2);
  const InitialPolicy policy = SomePolicy(network);
  FakeEvaluator evaluator(network.parameter_count, ByMember);
  const auto es = MakeEsConfig()->Make({1, network, evaluator, {}, &policy});
  EXPECT_EQ(*ParametersOf(es->Candidates()[0].candidate, network), policy.parameters);
  EXPECT_EQ(es->Candidates()[0].name, "centre");
  const auto plus = ParametersOf(es->MemberOfNext(0), network).ValueOrThrow(),
             minus = ParametersOf(es->MemberOfNext(1), network).ValueOrThrow();
  for (size_t i = 0; i < plus.size(); ++i) {
    EXPECT_NE(plus[i], policy.parameters[i]);
    EXPECT_NEAR(plus[i] + minus[i], 2 * policy.parameters[i], 1e-5);
  }
}

}  // namespace
}  // namespace samara::initial_policy_test
