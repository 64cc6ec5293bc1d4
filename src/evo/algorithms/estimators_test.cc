// ARS, PGPE with ClipUp, SNES and sep-CMA-ES: one step each against the formulas in double
// precision, convergence on functions with a known optimum, and what all algorithms promise.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/bytes.h"
#include "core/rng.h"
#include "evo/algorithms/cma.h"
#include "evo/algorithms/cma_search.h"
#include "evo/algorithms/registry.h"
#include "evo/evaluate/evaluate_test_util.h"
#include "evo/genome/noise.h"

namespace samara::estimators_test {
namespace {

constexpr uint64_t kSeed = 31;
constexpr const char* kNames[] = {"ars", "pgpe", "snes", "sep-cma-es", "cma-es"};

std::unique_ptr<EvolutionConfig> Config(const std::string& name,
                                        std::initializer_list<const char*> settings) {
  auto config = FindEvolutionAlgorithm(name)->config();
  ConfigTable table;
  config->Bind(table);
  for (const std::string key : {"validation_episodes", "test_every"})
    EXPECT_TRUE(table.Override(config->table() + "." + key + (key[0] == 'v' ? "=1" : "=0")).ok());
  for (const char* setting : settings) EXPECT_TRUE(table.Override(setting).ok()) << setting;
  return config;
}

std::vector<float> MeanOf(const EvolutionAlgorithm& algorithm) {
  return std::get<std::vector<float>>(algorithm.summary().best);
}

// A sphere whose centre is at 0.5, 1.5, ... of unequal axes.
double Fitness(std::span<const float> theta) {
  double sum = 0;
  for (size_t i = 0; i < theta.size(); ++i) {
    const double d = theta[i] - 0.5 * static_cast<double>(1 + i % 3);
    sum += static_cast<double>(1 + i) * d * d;
  }
  return -sum;
}

EpisodeResult Play(const Task&, std::span<const float> theta) {
  return {.fitness = Fitness(theta), .frames = 1, .steps = 1};
}

// e(k) of the first generation.
std::vector<std::vector<double>> Noise1(size_t keys, size_t parameters) {
  std::vector<std::vector<double>> e;
  std::vector<float> values(parameters);
  for (uint64_t k = 0; k < keys; ++k) {
    GetNoise(NoiseKind::kNormal).Fill(DeriveKey(kSeed, Purpose::kMutation, 1, k), 0, values);
    e.emplace_back(values.begin(), values.end());
  }
  return e;
}

struct First {
  NetworkDescription network = Network("linear", 3, 2);
  size_t n = network.parameter_count;
  std::vector<float> mean;
  std::vector<double> fitness;
  explicit First(const EvolutionConfig& config) {
    FakeEvaluator evaluator(n, Play);
    const auto algorithm = config.Make({kSeed, network, evaluator, {}});
    fitness = algorithm->Step(nullptr)->fitness;
    mean = MeanOf(*algorithm);
  }
};

// Members, best first.
std::vector<size_t> Order(const std::vector<double>& fitness) {
  std::vector<size_t> order(fitness.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return fitness[a] > fitness[b]; });
  return order;
}

TEST(ArsTest, TakesThePublishedStep) {
  const First first(
      *Config("ars", {"ars.directions=6", "ars.top=2", "ars.step_size=0.1", "ars.sigma=0.2"}));
  const auto e = Noise1(6, first.n);
  std::vector<double> better;
  for (size_t k = 0; k < 6; ++k)
    better.push_back(std::max(first.fitness[2 * k], first.fitness[2 * k + 1]));
  const std::vector<size_t> order = Order(better);
  std::vector<double> used;
  for (size_t p = 0; p < 2; ++p)
    used.insert(used.end(), {first.fitness[2 * order[p]], first.fitness[2 * order[p] + 1]});
  double average = 0, variance = 0;
  for (const double r : used) average += r / 4;
  for (const double r : used) variance += (r - average) * (r - average) / 4;
  for (size_t i = 0; i < first.n; ++i) {
    double step = 0;
    for (size_t p = 0; p < 2; ++p)
      step += (first.fitness[2 * order[p]] - first.fitness[2 * order[p] + 1]) * e[order[p]][i];
    EXPECT_NEAR(first.mean[i], 0.1 / (2 * std::sqrt(variance)) * step, 1e-6);
  }
}

// A bonus for each step, and the shift that takes it away again.
TEST(ArsTest, AShiftTakesABonusOfStayingAliveAway) {
  const NetworkDescription network = Network("linear", 3, 2);
  for (const std::string name : {"ars", "es"}) {
    const auto mean = [&](const std::string& shift, double bonus) {
      FakeEvaluator evaluator(
          network.parameter_count, [bonus](const Task& task, std::span<const float> theta) {
            const auto steps = static_cast<uint32_t>(1 + task.episode.seed % 90);
            return EpisodeResult{.fitness = Fitness(theta) + bonus * static_cast<double>(steps),
                                 .steps = steps};
          });
      const auto algorithm =
          Config(name, {(name + ".shift=" + shift).c_str()})->Make({kSeed, network, evaluator, {}});
      for (int g = 0; g < 3; ++g) EXPECT_TRUE(algorithm->Step(nullptr).ok());
      return MeanOf(*algorithm);
    };
    const std::vector<float> plain = mean("0", 0), shifted = mean("2", 2), longest = mean("0", 2);
    for (size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(shifted[i], plain[i], 1e-5) << name;
    EXPECT_NE(longest, plain) << name;
  }
}

TEST(PgpeTest, TakesClipUpsStep) {
  const First first(
      *Config("pgpe", {"pgpe.population=10", "pgpe.max_speed=0.2", "pgpe.shaping=zscore"}));
  const auto e = Noise1(5, first.n);
  const double sigma = 15 * 0.2 / std::sqrt(static_cast<double>(first.n));
  std::vector<double> gradient(first.n);
  double length = 0;
  for (size_t i = 0; i < first.n; ++i) {
    for (size_t j = 0; j < 5; ++j)
      gradient[i] += (first.fitness[2 * j] - first.fitness[2 * j + 1]) * sigma * e[j][i];
    length += gradient[i] * gradient[i];
  }
  // from rest the step has the length alpha = 0.75 max_speed, below the bound
  for (size_t i = 0; i < first.n; ++i)
    EXPECT_NEAR(first.mean[i], 0.75 * 0.2 * gradient[i] / std::sqrt(length), 1e-6);
}

TEST(SnesTest, TakesTheStepOfItsUtilities) {
  const First first(*Config("snes", {"snes.population=7", "snes.sigma=0.3"}));
  const auto e = Noise1(7, first.n);
  const std::vector<size_t> order = Order(first.fitness);
  std::vector<double> u(7);
  double sum = 0;
  for (size_t p = 0; p < 7; ++p)
    sum += u[order[p]] = std::max(0.0, std::log(4.5) - std::log(static_cast<double>(p + 1)));
  for (size_t i = 0; i < first.n; ++i) {
    double step = 0;
    for (size_t k = 0; k < 7; ++k) step += (u[k] / sum - 1.0 / 7) * e[k][i];
    EXPECT_NEAR(first.mean[i], 0.3 * step, 1e-6);
  }
}

TEST(CmaTest, MovesByTheWeightedBetterHalfAsTheSeparableOneDoesAtFirst) {
  const First full(*Config("cma-es", {"cma.population=8", "cma.sigma=0.3"}));
  const First diagonal(*Config("sep-cma-es", {"cma.population=8", "cma.sigma=0.3"}));
  for (size_t i = 0; i < full.n; ++i) EXPECT_NEAR(full.mean[i], diagonal.mean[i], 1e-6);
}

TEST(CmaTest, ConstantsAreThoseOfTheTutorial) {
  // n = 10 and lambda = 10 have mu_eff = 3.17, c_c = 0.29, c_1 = 0.0153, c_mu = 0.02 there
  const CmaConstants c(10, 10, false);
  EXPECT_NEAR(c.mu_eff, 3.167, 1e-3);
  EXPECT_NEAR(c.weights[0], 0.4563, 1e-4);
  EXPECT_NEAR(c.c_sigma, 5.167 / 18.167, 1e-3);
  EXPECT_NEAR(c.c_c, (4 + 0.3167) / (14 + 0.6334), 1e-3);
  EXPECT_NEAR(c.c_1, 2 / (11.3 * 11.3 + 3.167), 1e-4);
  EXPECT_NEAR(c.c_mu, 2 * (3.167 - 2 + 1 / 3.167) / (144 + 3.167), 1e-4);
  EXPECT_NEAR(c.chi_n, 3.0843, 1e-3);
  for (const size_t lambda : {4UL, 100UL, 5000UL}) {
    for (const size_t n : {1UL, 50UL, 1000UL}) {
      for (const bool separable : {false, true}) {
        const CmaConstants k(lambda, n, separable);
        EXPECT_LE(k.c_1 + k.c_mu, 1 + 1e-12);
        EXPECT_LE(k.c_c, 1);
        EXPECT_GE(k.c_mu, 0);
      }
    }
  }
}

TEST(CmaTest, TheFactorTimesItselfIsTheMatrix) {
  constexpr size_t kSize = 7;
  const CounterRng rng(3);
  std::vector<double> root(kSize * kSize), matrix;
  for (size_t i = 0; i < root.size(); ++i) root[i] = rng.Uniform(i) - 0.5;
  const auto product = [&](size_t i, size_t j) {
    double sum = i == j ? 0.01 : 0;
    for (size_t k = 0; k < kSize; ++k) sum += root[i * kSize + k] * root[j * kSize + k];
    return sum;
  };
  for (size_t i = 0; i < kSize; ++i)
    for (size_t j = 0; j <= i; ++j) matrix.push_back(product(i, j));
  std::vector<double> factor = matrix;
  ASSERT_TRUE(CholeskyInPlace(factor, kSize));
  size_t at = 0;
  for (size_t i = 0; i < kSize; ++i) {
    for (size_t j = 0; j <= i; ++j, ++at) {
      double sum = 0;
      for (size_t k = 0; k <= j; ++k)
        sum += factor[i * (i + 1) / 2 + k] * factor[j * (j + 1) / 2 + k];
      EXPECT_NEAR(sum, matrix[at], 1e-12);
    }
  }
  std::vector<double> indefinite = {1, 2, 1};
  EXPECT_FALSE(CholeskyInPlace(indefinite, 2));
}

// Axes that only a full covariance learns: a rotated ellipsoid of condition 10,000.
TEST(CmaTest, LearnsARotatedEllipsoid) {
  const NetworkDescription network = Network("linear", 3, 2);
  const auto score = [](const Task&, std::span<const float> theta) {
    double sum = 0, all = 0;
    for (size_t i = 0; i < theta.size(); ++i) {
      const double d = theta[i] - 0.3;
      sum += d * d, all += d;
    }
    return EpisodeResult{.fitness = -sum - 1e4 * all * all, .frames = 1, .steps = 1};
  };
  FakeEvaluator evaluator(network.parameter_count, score);
  const auto cma = Config("cma-es", {"cma.population=12", "cma.sigma=0.5"})
                       ->Make({kSeed, network, evaluator, {}});
  for (int g = 0; g < 600; ++g) ASSERT_TRUE(cma->Step(nullptr).ok());
  EXPECT_GT(score({}, MeanOf(*cma)).fitness, -1e-6);
}

TEST(SepCmaTest, MovesByTheWeightedBetterHalf) {
  const First first(*Config("sep-cma-es", {"cma.population=8", "cma.sigma=0.3"}));
  const auto e = Noise1(8, first.n);
  const std::vector<size_t> order = Order(first.fitness);
  double sum = 0;
  for (size_t p = 0; p < 4; ++p) sum += std::log(4.5) - std::log(static_cast<double>(p + 1));
  for (size_t i = 0; i < first.n; ++i) {
    double step = 0;
    for (size_t p = 0; p < 4; ++p)
      step += (std::log(4.5) - std::log(static_cast<double>(p + 1))) / sum * e[order[p]][i];
    EXPECT_NEAR(first.mean[i], 0.3 * step, 1e-6);
  }
}

// The optimum of a sphere of unequal axes, which each must come close to.
TEST(EstimatorsTest, FindTheOptimumOfAnEllipsoid) {
  struct Case {
    const char* name;
    std::initializer_list<const char*> settings;
    int generations;
    double error;  // at the end
  };
  const Case cases[] = {
      {"ars", {"ars.directions=16", "ars.top=8", "ars.step_size=0.05", "ars.sigma=0.05"}, 300, 0.5},
      {"pgpe", {"pgpe.population=40", "pgpe.max_speed=0.1"}, 300, 0.5},
      {"snes", {"snes.population=30", "snes.sigma=0.5"}, 300, 1e-6},
      {"sep-cma-es", {"cma.population=16", "cma.sigma=0.5"}, 200, 1e-6},
      {"cma-es", {"cma.population=16", "cma.sigma=0.5"}, 200, 1e-6},
      // large populations, of which a rival's covariance became NaN
      {"sep-cma-es", {"cma.population=2000", "cma.sigma=0.5"}, 60, 1e-6},
      {"cma-es", {"cma.population=2000", "cma.sigma=0.5"}, 60, 1e-6}};
  const NetworkDescription network = Network("linear", 3, 2);
  for (const Case& c : cases) {
    FakeEvaluator evaluator(network.parameter_count, Play);
    const auto algorithm = Config(c.name, c.settings)->Make({kSeed, network, evaluator, {}});
    for (int g = 0; g < c.generations; ++g) ASSERT_TRUE(algorithm->Step(nullptr).ok());
    EXPECT_GT(Fitness(MeanOf(*algorithm)), -c.error) << c.name;
  }
}

TEST(EstimatorsTest, KeepTheirBitsInAnyOrderAndGoOnFromTheirState) {
  const NetworkDescription network = Network("linear", 3, 2);
  for (const char* name : kNames) {
    const auto config = Config(name, {});
    FakeEvaluator serial(network.parameter_count, Play);
    DisorderlyEvaluator disorderly(network.parameter_count, Play, {3, 3, 2, 0});
    const auto a = config->Make({kSeed, network, serial, {}});
    const auto b = config->Make({kSeed, network, disorderly, {}});
    for (int g = 0; g < 3; ++g) ASSERT_TRUE(a->Step(nullptr).ok() && b->Step(nullptr).ok());
    EXPECT_EQ(a->EncodeState(), b->EncodeState()) << name;
    const auto c = config->Make({kSeed, network, serial, {}});
    const std::string state = a->EncodeState();
    ASSERT_TRUE(c->RestoreState(state).ok());
    ASSERT_TRUE(a->Step(nullptr).ok() && c->Step(nullptr).ok());
    EXPECT_EQ(a->EncodeState(), c->EncodeState()) << name;
    for (size_t size = 0; size < state.size(); size += 3)
      ASSERT_EQ(c->RestoreState(std::string_view(state).substr(0, size)).code(), Code::kBadData);
    const NetworkDescription other = Network("linear", 3, 3);
    FakeEvaluator wider(other.parameter_count, Play);
    EXPECT_EQ(config->Make({kSeed, other, wider, {}})->RestoreState(state).code(), Code::kBadData);
  }
}

// The first version of a state had no statistics of observations; of a network without a
// `normalize` layer they are 32 bytes.
TEST(EstimatorsTest, GoOnFromAStateOfTheFirstVersion) {
  const NetworkDescription network = Network("linear", 3, 2);
  for (const std::string name : kNames) {
    const auto config = Config(name, {});
    FakeEvaluator evaluator(network.parameter_count, Play);
    const auto a = config->Make({kSeed, network, evaluator, {}});
    ASSERT_TRUE(a->Step(nullptr).ok());
    const std::string now = a->EncodeState();
    const size_t behind = name == "ars" || name == "cma-es" ? 8 + 32 : 8 + 8 + 32;
    const std::string before = ByteWriter().Put(uint32_t{1}).Take() +
                               now.substr(4, now.size() - behind - 32 - 4) +
                               now.substr(now.size() - behind);
    const auto b = config->Make({kSeed, network, evaluator, {}});
    ASSERT_TRUE(b->RestoreState(before).ok()) << name;
    EXPECT_EQ(b->EncodeState(), now) << name;
  }
}

EpisodeResult Observed(const Task& task, std::span<const float> theta) {
  return WithObservation(task, Play(task, theta));
}

TEST(EstimatorsTest, RebuildEachMemberThatPlays) {
  const NetworkDescription network = Network("normalize, dense 4 tanh", 3, 2);
  for (const char* name : kNames) {
    std::map<uint64_t, std::vector<float>> played;
    FakeEvaluator evaluator(network.parameter_count,
                            [&](const Task& task, std::span<const float> theta) {
                              if (task.role != Role::kEvaluate)
                                played[task.policy.id].assign(theta.begin(), theta.end());
                              return Observed(task, theta);
                            });
    const auto config = Config(name, {});
    const auto a = config->Make({kSeed, network, evaluator, {}});
    ASSERT_TRUE(a->Step(nullptr).ok());
    const auto b = config->Make({kSeed, network, evaluator, {}});
    ASSERT_TRUE(b->RestoreState(a->EncodeState()).ok());
    ASSERT_TRUE(a->Step(nullptr).ok());
    EXPECT_EQ(b->MembersOfNext(), played.size()) << name;
    for (const auto& [i, theta] : played)
      EXPECT_EQ(std::get<std::vector<float>>(b->MemberOfNext(i)), theta) << name << " " << i;
    EXPECT_EQ(a->Candidates().front().name, "centre");
  }
}

// Version 2 of ARS, and the same for the others.
TEST(EstimatorsTest, NormalizeByWhatTheirMembersHaveSeen) {
  const NetworkDescription network = Network("normalize, dense 4 tanh", 3, 2);
  const Layer& layer = network.layers.front();
  for (const std::string name : kNames) {
    const auto config = Config(name, {});
    EXPECT_TRUE(config->KeepsStatistics(network));
    EXPECT_FALSE(config->KeepsStatistics(Network("linear", 3, 2)));
    size_t recorded = 0;
    FakeEvaluator evaluator(network.parameter_count,
                            [&](const Task& task, std::span<const float> theta) {
                              recorded += task.episode.record == RecordKind::kObservations;
                              EXPECT_GT(theta[layer.spread_offset], 0);
                              return Observed(task, theta);
                            });
    const auto a = config->Make({kSeed, network, evaluator, {}});
    EXPECT_EQ(MeanOf(*a)[layer.mean_offset], 0);
    EXPECT_EQ(MeanOf(*a)[layer.spread_offset], 1);
    const auto members = static_cast<double>(a->Step(nullptr)->fitness.size());
    EXPECT_EQ(recorded, members) << name << ": the population, and no validation";
    EXPECT_NEAR(MeanOf(*a)[layer.mean_offset], (members - 1) / 2, 0.02) << name;
    EXPECT_NEAR(MeanOf(*a)[layer.mean_offset + 1], 1, 0.01) << name;
    EXPECT_NEAR(MeanOf(*a)[layer.spread_offset], std::sqrt((members * members - 1) / 12), 0.02)
        << name;
    DisorderlyEvaluator disorderly(network.parameter_count, Observed, {6, 3, 2, 0});
    const auto b = config->Make({kSeed, network, disorderly, {}});
    ASSERT_TRUE(b->Step(nullptr).ok());
    EXPECT_EQ(b->EncodeState(), a->EncodeState()) << name;
    const auto without = Config(name, {(config->table() + ".observation_share=0").c_str()});
    EXPECT_FALSE(without->KeepsStatistics(network)) << "a reference batch measures them";
    EXPECT_EQ(without->Make({kSeed, network, evaluator, {}})->RestoreState(a->EncodeState()).code(),
              Code::kBadData);
  }
}

// Equal, infinite and missing returns leave finite parameters.
TEST(EstimatorsTest, StayFiniteWhateverReturns) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const NetworkDescription network = Network("linear", 3, 2);
  for (const char* name : kNames) {
    for (const double odd : {0.0, kInfinity, -kInfinity, std::nan("")}) {
      for (const bool all : {false, true}) {
        FakeEvaluator evaluator(network.parameter_count, [&](const Task& task, auto) {
          const bool is_odd = all || task.policy.id % 3 == 0;
          return EpisodeResult{.fitness = is_odd ? odd : 1.0 * task.policy.id, .steps = 1};
        });
        const auto algorithm = Config(name, {})->Make({kSeed, network, evaluator, {}});
        for (int g = 0; g < 2; ++g) ASSERT_TRUE(algorithm->Step(nullptr).ok());
        for (const float value : MeanOf(*algorithm))
          EXPECT_TRUE(std::isfinite(value)) << name << " " << odd << " " << all;
      }
    }
  }
}

TEST(EstimatorsTest, RefuseWhatTheyCannotPlay) {
  const NetworkDescription small = Network("linear", 3, 2);
  EXPECT_EQ(Config("pgpe", {"pgpe.population=7"})->Check(small).code(), Code::kConfig);
  ConfigTable pgpe;
  const auto bound = FindEvolutionAlgorithm("pgpe")->config();
  bound->Bind(pgpe);
  EXPECT_EQ(pgpe.Override("pgpe.shaping=sign").code(), Code::kConfig);
  EXPECT_EQ(pgpe.Find("pgpe.shaping")->type, "one of centered_rank|nes|zscore");
  EXPECT_EQ(Config("snes", {"snes.population=1000000", "snes.episodes=1000",
                            "snes.validation_episodes=5000"})
                ->Check(small)
                .code(),
            Code::kConfig);
  const NetworkDescription large = Network("mlp-8192-8192-tanh", 4, 2);
  for (const char* name : kNames)
    EXPECT_EQ(Config(name, {})->Check(large).code(), Code::kConfig) << name;
  const auto ars = Config("ars", {"ars.directions=4", "ars.top=9"});
  EXPECT_EQ(ars->Settle().size(), 1U);
}

}  // namespace
}  // namespace samara::estimators_test
