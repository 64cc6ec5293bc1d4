#include "rl/algorithms/registry.h"

#include <gtest/gtest.h>

#include "rl/learner/algorithm.h"

namespace samara::registry_test {
namespace {

struct ToyParameters : AlgorithmConfig {
  std::unique_ptr<AlgorithmConfig> Clone() const override {
    return std::make_unique<ToyParameters>(*this);
  }
  void Bind(ConfigTable& table) override { table.Add("toy.scale", &scale, {0, 10}, "", ""); }
  Status Check(const LearningConfig&) const override {
    return scale > 0 ? Status::Ok() : Status(Code::kConfig, "toy.scale=0");
  }
  double scale = 1;
};

// A program's own loss; its only number is a sum over the network's parameters.
struct Toy : Algorithm {
  explicit Toy(const LearningConfig& config)
      : scale(dynamic_cast<const ToyParameters&>(*config.own).scale) {}
  ShardLoss Loss(const Shard& shard) const override {
    torch::Tensor sum = torch::zeros({});
    for (const auto& parameter : shard.network.parameters()) sum = sum + parameter.square().sum();
    return {.total = scale * sum, .numbers = {{"size", sum.item<double>(), true}}};
  }
  bool averages() const override { return true; }
  double scale;
};

LearningAlgorithm ToyRow() {
  return {.name = "toy",
          .about = "shrinks",
          .paper = "none",
          .parameters = []() -> std::unique_ptr<AlgorithmConfig> {
            return std::make_unique<ToyParameters>();
          },
          .make = [](const LearningConfig& config) -> std::unique_ptr<Algorithm> {
            return std::make_unique<Toy>(config);
          }};
}

TEST(LearningRegistryTest, AProgramsOwnAlgorithmHasKeysChecksAndLearns) {
  RegisterLearningAlgorithm(ToyRow());
  ASSERT_NE(FindLearningAlgorithm("toy"), nullptr);
  AgentSetup setup;
  ChooseAlgorithm(setup.config, "toy");
  ConfigTable table;
  Bind(table, setup.config);
  ASSERT_TRUE(table.Override("toy.scale=0").ok());
  EXPECT_EQ(MakeAgent(setup).status().message(), "toy.scale=0");
  ASSERT_TRUE(table.Override("toy.scale=2").ok());

  setup.environment.observation = {DType::kFloat32, {2}};
  setup.environment.action.n = 2;
  setup.config.learn.batch = 1;
  setup.config.network.name = "mlp-4-tanh";
  setup.config.optimizer.learning_rate = 0.1;
  const auto agent = MakeAgent(setup).ValueOrThrow();
  const ModelShape& shape = agent->shape();
  UnrollStore store({.observation_bytes = shape.observation_bytes,
                     .action_values = shape.action_values,
                     .behaviour = shape.behaviour,
                     .values = shape.values,
                     .state = shape.state,
                     .history_bytes = shape.history_bytes},
                    {.length = 1});
  const std::vector<std::byte> observation(shape.observation_bytes);
  const std::vector<float> behaviour(shape.behaviour), values(shape.values);
  const auto size = [&] {
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(store.Reserve(0));
      Entry entry;
      entry.observation = observation;
      entry.behaviour = behaviour, entry.values = values;
      store.Append(0, entry);
    }
    return agent->Update(store.Take(1), 0).ValueOrThrow().numbers.at("size");
  };
  const double before = size();
  EXPECT_LT(size(), before);
}

TEST(LearningRegistryTest, ANameIsRegisteredOnce) {
  LearningAlgorithm row = ToyRow();
  row.name = "vtrace";
  EXPECT_DEATH(RegisterLearningAlgorithm(row), "two learning algorithms named vtrace");
}

TEST(LearningRegistryTest, ACopiedConfigurationHasItsOwnParameters) {
  LearningConfig config;
  ChooseAlgorithm(config, "vtrace");
  const LearningConfig copy = config;
  const auto gamma = [](const LearningConfig& c) {
    LearningConfig bound = c;
    ConfigTable table;
    Bind(table, bound);
    return table.Find("vtrace.gamma")->get();
  };
  ConfigTable table;
  Bind(table, config);
  ASSERT_TRUE(table.Override("vtrace.gamma=0.5").ok());
  EXPECT_EQ(gamma(config), "0.5");
  EXPECT_EQ(gamma(copy), "0.99");
  ChooseAlgorithm(config, "vtrace");
  EXPECT_EQ(gamma(config), "0.5") << "chosen again, it keeps what was set";
}

// On the CPU bfloat16 must be asked for, also where it has it, and so must float32 on a GPU; the
// default follows the GPU.
TEST(RegistryTest, ThePrecisionIsTheOneAskedForOrFitsTheDevice) {
  AgentSetup setup;
  EXPECT_EQ(PrecisionOf(setup), Precision::kFloat32);
  setup.config.network.precision = Precision::kBfloat16;
  EXPECT_EQ(PrecisionOf(setup), Precision::kBfloat16);
  setup.config.network.precision = Precision::kFastest;
  for (const char* algorithm : {"sac", "vtrace"}) {  // without torch and with it
    setup.config.algorithm = algorithm;
    EXPECT_EQ(PrecisionOf(setup) == Precision::kBfloat16, HasBf16Products());
  }
  for (const Gpu& gpu : FindGpus().gpus) {
    setup.learns_on = setup.infers_on = {.cuda = true, .ordinal = gpu.ordinal};
    setup.config.network.precision = Precision::kAuto;
    EXPECT_EQ(PrecisionOf(setup) == Precision::kBfloat16, gpu.capability >= 80);
    setup.config.network.module = "a module computes as it is written";
    EXPECT_EQ(PrecisionOf(setup), Precision::kFloat32);
    setup.config.network.module.clear();
    setup.config.network.precision = Precision::kFloat32;
    EXPECT_EQ(PrecisionOf(setup), Precision::kFloat32);
  }
}

}  // namespace
}  // namespace samara::registry_test
