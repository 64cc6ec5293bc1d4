#include "evo/algorithms/registry.h"

#include <gtest/gtest.h>

#include <set>

#include "evo/algorithms/ga_test_util.h"

namespace samara::registry_test {
namespace {

TEST(EvolutionRegistryTest, EveryRowMakesAConfigurationAndReadsItsStates) {
  const NetworkDescription network = Network("linear", 3, 2);
  std::set<std::string> names;
  for (const EvolutionRow& row : EvolutionAlgorithms()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(FindEvolutionAlgorithm(row.name)->about, row.about);
    EXPECT_FALSE(row.about.empty() || row.paper.empty()) << row.name;
    const auto config = row.config();
    ConfigTable table;
    config->Bind(table);
    for (const ConfigField& field : table.fields())
      EXPECT_TRUE(field.key.starts_with(config->table() + ".") ||
                  field.key.starts_with("novelty.") || field.key.starts_with("map."))
          << field.key;
    EXPECT_TRUE(config->Check(network).ok()) << row.name;
    if (table.Find("map.low") != nullptr) {
      ASSERT_TRUE(table.Set("map.low", "0,0").ok() && table.Set("map.high", "9,9").ok());
    }

    config->budget.test_episodes = 2;
    FakeEvaluator evaluator(network.parameter_count, [](const Task& task, auto) {
      return EpisodeResult{.fitness = static_cast<double>(task.policy.id % 7),
                           .frames = 1,
                           .position = {1, static_cast<float>(task.policy.id)}};
    });
    evaluator.SetPosition(2);
    const auto copy = config->Clone();
    const auto algorithm = copy->Make({1, network, evaluator, {}});
    ASSERT_TRUE(algorithm->Step(nullptr).ok()) << row.name;
    const EvolutionSummary own = algorithm->summary();
    const EvolutionSummary read = row.describe(algorithm->EncodeState()).ValueOrThrow();
    EXPECT_EQ(own.generation, 1U);
    EXPECT_EQ(read.generation, own.generation);
    EXPECT_EQ(read.frames, own.frames);
    EXPECT_EQ(read.population_hash, own.population_hash);
    EXPECT_EQ(read.best, own.best);
    EXPECT_EQ(ParametersOf(read.best, network)->size(), network.parameter_count);
    EXPECT_EQ(row.describe("nonsense").status().code(), Code::kBadData);
  }
  EXPECT_EQ(FindEvolutionAlgorithm("none"), nullptr);
}

// Cut anywhere or too long, a state is refused by the algorithm and by the row that describes it,
// and the algorithm goes on as if nothing had been asked.
TEST(EvolutionRegistryTest, EveryStateIsReadWholeOrNotAtAll) {
  const NetworkDescription network = Network("linear", 2, 1);
  for (const EvolutionRow& row : EvolutionAlgorithms()) {
    if (row.name == "another") continue;  // of the next test, when tests are repeated
    const auto config = row.config();
    ConfigTable table;
    config->Bind(table);
    if (table.Find("map.low") != nullptr) {
      ASSERT_TRUE(table.Set("map.low", "0,0").ok() && table.Set("map.high", "9,9").ok());
    }
    for (const char* small : {"ga.population=4", "es.population=4", "snes.population=4"})
      (void)table.Override(small);
    FakeEvaluator evaluator(network.parameter_count, [](const Task& task, auto) {
      return EpisodeResult{.fitness = static_cast<double>(task.policy.id % 7),
                           .frames = 1,
                           .position = {1, static_cast<float>(task.policy.id % 9)}};
    });
    evaluator.SetPosition(2);
    config->Settle();
    const auto algorithm = config->Make({1, network, evaluator, {}});
    ASSERT_TRUE(algorithm->Step(nullptr).ok()) << row.name;
    const std::string state = algorithm->EncodeState();
    const auto refused = [&](std::string_view bytes) {
      EXPECT_EQ(row.describe(bytes).status().code(), Code::kBadData) << row.name;
      return algorithm->RestoreState(bytes).code() == Code::kBadData;
    };
    // all of the beginning, where versions and counts are, and a part of the numbers that follow
    for (size_t size = 0; size < state.size(); size += size < 300 ? 1 : 1 + state.size() / 50)
      EXPECT_TRUE(refused(std::string_view(state).substr(0, size))) << row.name << ": " << size;
    EXPECT_TRUE(refused(state + "x")) << row.name;
    for (const char version : {0, 99}) {
      std::string other = state;
      other[0] = version;
      EXPECT_TRUE(refused(other)) << row.name;
    }
    EXPECT_EQ(algorithm->EncodeState(), state) << row.name;
    EXPECT_TRUE(algorithm->RestoreState(state).ok()) << row.name;
    const auto fresh = config->Make({1, network, evaluator, {}});
    EXPECT_TRUE(fresh->RestoreState(fresh->EncodeState()).ok()) << row.name;
    // genomes fit any network, parameters theirs alone
    const NetworkDescription larger = Network("linear", 3, 2);
    const auto other = config->Make({1, larger, evaluator, {}});
    const bool taken = other->RestoreState(state).ok();
    if (row.name != "ga-ns") {  // whose archive may be empty
      EXPECT_EQ(taken, config->table() == "ga") << row.name;
    }
  }
}

// Warnings of `algorithm` with these settings.
std::vector<std::string> Warnings(const std::string& algorithm,
                                  std::initializer_list<const char*> settings) {
  const auto config = FindEvolutionAlgorithm(algorithm)->config();
  ConfigTable table;
  config->Bind(table);
  for (const char* setting : settings) EXPECT_TRUE(table.Override(setting).ok()) << setting;
  return config->Settle();
}

TEST(EvolutionRegistryTest, WarnsOfKeysThatNothingUses) {
  using Lines = std::vector<std::string>;
  for (const char* name : {"es", "ns-es", "nsra-es"}) {
    EXPECT_EQ(Warnings(name, {}), Lines()) << name;
    EXPECT_EQ(Warnings(name, {"es.momentum=0.5"}),
              Lines{"es.momentum=0.5 has no effect with es.optimizer=adam"});
    EXPECT_EQ(Warnings(name, {"es.momentum=0.5", "es.optimizer=sgd_classic"}), Lines());
  }
  EXPECT_EQ(Warnings("es", {"es.sigma_end=0.5"}),
            Lines{"es.sigma_end=0.5 has no effect with es.sigma_schedule=constant"});
  EXPECT_EQ(Warnings("es", {"es.sigma_end=0.5", "es.sigma_schedule=linear"}), Lines());
  for (const char* name : {"deep-ga", "ga-ns", "map-elites", "ssga"}) {
    EXPECT_EQ(Warnings(name, {}), Lines()) << name;
    EXPECT_EQ(Warnings(name, {"ga.mutation_clip=0.2"}),
              Lines{"ga.mutation_clip=0.2 has no effect with ga.mutation=plain"})
        << name;
    EXPECT_EQ(Warnings(name, {"ga.legacy_sum=true", "ga.mutation=sm_g_abs"}),
              Lines{"ga.legacy_sum=true has no effect with ga.mutation=sm_g_abs"})
        << name;
    EXPECT_EQ(Warnings(name, {"ga.mutation_clip=0.2", "ga.mutation=sm_g_so"}), Lines()) << name;
  }
}

TEST(EvolutionRegistryDeathTest, ANameIsRegisteredOnce) {
  EvolutionRow row = EvolutionAlgorithms()[0];
  EXPECT_DEATH(RegisterEvolutionAlgorithm(row), "deep-ga is registered twice");
  row.name = "another";
  RegisterEvolutionAlgorithm(row);
  EXPECT_NE(FindEvolutionAlgorithm("another"), nullptr);
}

}  // namespace
}  // namespace samara::registry_test
