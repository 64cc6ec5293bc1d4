// Evolution strategies against the formulas in double precision, and what they promise.
#include "evo/algorithms/es.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/bytes.h"
#include "evo/algorithms/shaping.h"
#include "evo/evaluate/evaluate_test_util.h"
#include "evo/genome/noise.h"

namespace samara::es_test {
namespace {

constexpr uint64_t kSeed = 21;

std::unique_ptr<EvolutionConfig> Config(std::initializer_list<const char*> settings) {
  auto config = MakeEsConfig();
  ConfigTable table;
  config->Bind(table);
  for (const char* setting : settings) EXPECT_TRUE(table.Override(setting).ok()) << setting;
  return config;
}

std::vector<float> CentreOf(const EvolutionAlgorithm& es) {
  return std::get<std::vector<float>>(es.summary().best);
}

// A return that grows with the first parameter and depends on the episode too.
EpisodeResult Score(const Task& task, std::span<const float> theta) {
  const auto luck = static_cast<double>(task.episode.seed % 7) / 10;
  return {.fitness = theta[0] + luck, .frames = 4, .steps = 1};
}

// Three generations of the published update, in doubles and from whole vectors.
void CompareWithTheFormula(bool adam) {
  constexpr size_t kPairs = 4;
  constexpr double kSigma = 0.1, kRate = 0.05, kDecay = 0.01;
  const auto config =
      Config({"es.population=8", "es.sigma=0.1", "es.learning_rate=0.05", "es.weight_decay=0.01",
              "es.validation_episodes=2", adam ? "es.optimizer=adam" : "es.optimizer=sgd"});
  const NetworkDescription network = Network("linear", 3, 2);
  FakeEvaluator evaluator(network.parameter_count, Score);
  const auto es = config->Make({kSeed, network, evaluator, {}});
  const size_t n = network.parameter_count;
  std::vector<double> m(n), v(n);
  for (uint64_t g = 1; g <= 3; ++g) {
    const std::vector<float> theta = CentreOf(*es);
    std::vector<std::vector<float>> e(kPairs, std::vector<float>(n));
    std::vector<double> fitness;
    for (uint64_t j = 0; j < kPairs; ++j) {
      GetNoise(NoiseKind::kNormal).Fill(DeriveKey(kSeed, Purpose::kMutation, g, j), 0, e[j]);
      for (const double sign : {1.0, -1.0}) {
        const uint64_t member = 2 * j + (sign < 0);
        const uint64_t seed = DeriveKey(kSeed, Purpose::kEpisodePopulation, g, member);
        const std::vector<float> played = {static_cast<float>(theta[0] + sign * kSigma * e[j][0])};
        Task task;
        task.episode.seed = seed;
        fitness.push_back(Score(task, played).fitness);
      }
    }
    const GenerationReport report = es->Step(nullptr).ValueOrThrow();
    for (size_t i = 0; i < fitness.size(); ++i) EXPECT_NEAR(report.fitness[i], fitness[i], 1e-6);
    const std::vector<double> u = CentredRanks(report.fitness);
    const std::vector<float> after = CentreOf(*es);
    for (size_t i = 0; i < n; ++i) {
      double gradient = 0;
      for (size_t j = 0; j < kPairs; ++j) gradient += (u[2 * j] - u[2 * j + 1]) * e[j][i];
      const double d = -gradient / (2 * kPairs) + kDecay * theta[i];
      m[i] = 0.9 * m[i] + 0.1 * d, v[i] = 0.999 * v[i] + 0.001 * d * d;
      const auto t = static_cast<double>(g);
      const double corrected = std::sqrt(v[i] / (1 - std::pow(0.999, t)));
      // the released program adds epsilon before the correction of v: too small to show here
      const double step =
          adam ? kRate * m[i] / (1 - std::pow(0.9, t)) / (corrected + 1e-8) : kRate * d;
      EXPECT_NEAR(after[i], theta[i] - step, 2e-5) << "parameter " << i << " generation " << g;
    }
  }
}

TEST(EsTest, AdamTakesThePublishedStep) { CompareWithTheFormula(true); }
TEST(EsTest, SgdTakesThePublishedStep) { CompareWithTheFormula(false); }

TEST(EsTest, ClimbsAndCountsFrames) {
  const auto config =
      Config({"es.population=32", "es.sigma=0.1", "es.learning_rate=0.1", "es.episodes=2",
              "es.validation_episodes=3", "es.test_episodes=5", "es.test_every=2"});
  const NetworkDescription network = Network("linear", 3, 2);
  FakeEvaluator evaluator(network.parameter_count, Score);
  const auto es = config->Make({kSeed, network, evaluator, {}});
  const float before = CentreOf(*es)[0];
  size_t tested = 0;
  for (int g = 0; g < 20; ++g) {
    EXPECT_EQ(es->EpisodesOfNext(), g % 2 == 0 ? 67U : 72U);
    tested += es->Step(nullptr)->test_returns.size();
  }
  const EvolutionSummary summary = es->summary();
  EXPECT_GT(CentreOf(*es)[0], before + 1);
  EXPECT_NEAR(summary.best_mean, CentreOf(*es)[0] + 0.3, 0.3);
  EXPECT_EQ(tested, 50U);
  EXPECT_EQ(summary.episodes, 20U * 67);
  EXPECT_EQ(summary.frames, 4 * summary.episodes);
  EXPECT_EQ(summary.frames_test, 4U * tested);
}

const char* const kSmall[] = {"es.population=12", "es.sigma=0.1", "es.validation_episodes=2",
                              "es.test_episodes=3"};

std::unique_ptr<EvolutionConfig> Small() {
  return Config({kSmall[0], kSmall[1], kSmall[2], kSmall[3]});
}

TEST(EsTest, TheStateIsTheSameForAnyThreadsSlotsAndOrderOfPlay) {
  const auto factory = Native("CartPole-v1");
  const NetworkDescription network = Network("linear", 4, 2);
  const auto run = [&](std::unique_ptr<Evaluator> evaluator) {
    const auto es = Small()->Make({kSeed, network, *evaluator, {}});
    for (int g = 0; g < 4; ++g) EXPECT_TRUE(es->Step(nullptr).ok());
    return es->EncodeState();
  };
  const auto direct = [&](uint32_t threads) {
    return MakeDirectEvaluator(factory, ModelFor(factory, "linear"), threads).ValueOrThrow();
  };
  const std::string one = run(direct(1));
  EXPECT_EQ(run(direct(3)), one);
  EXPECT_EQ(run(MakeSlotEvaluator(MakeThreadFleet(factory, 5, 2).ValueOrThrow(),
                                  ModelFor(factory, "linear"), 2)),
            one);
  const NetworkDescription small = Network("linear", 3, 2);
  FakeEvaluator serial(small.parameter_count, Score);
  DisorderlyEvaluator disorderly(small.parameter_count, Score, {3, 3, 2, 200});
  const auto a = Small()->Make({kSeed, small, serial, {}});
  const auto b = Small()->Make({kSeed, small, disorderly, {}});
  for (int g = 0; g < 4; ++g) EXPECT_TRUE(a->Step(nullptr).ok() && b->Step(nullptr).ok());
  EXPECT_EQ(a->EncodeState(), b->EncodeState());
}

// A run that fails in every phase, and goes on elsewhere from its state and the kept episodes.
TEST(EsTest, GoesOnFromItsStateAndKeptEpisodes) {
  const NetworkDescription network = Network("linear", 3, 2);
  FakeEvaluator whole(network.parameter_count, Score);
  const auto undisturbed = Small()->Make({kSeed, network, whole, {}});
  std::string state = undisturbed->EncodeState();
  for (int g = 0; g < 3; ++g) EXPECT_TRUE(undisturbed->Step(nullptr).ok());
  std::vector<std::string> disk;
  size_t played = 0;
  while (DescribeEs(state)->generation < 3) {
    FakeEvaluator evaluator(network.parameter_count, Score);
    const auto es = Small()->Make({kSeed, network, evaluator, {}});
    ASSERT_TRUE(es->RestoreState(state).ok());
    for (const auto& record : disk) es->Reuse(FinishedEpisodes::Decode(record).ValueOrThrow());
    es->KeepFinished(1e9, [&](const FinishedEpisodes& finished) {
      disk.push_back(finished.Encode());
      return true;
    });
    evaluator.FailAfter(5);
    while (es->summary().generation < 3 && es->Step(nullptr).ok()) state = es->EncodeState();
    played += evaluator.played();
  }
  EXPECT_EQ(state, undisturbed->EncodeState());
  EXPECT_EQ(played, whole.played());
}

EpisodeResult Observed(const Task& task, std::span<const float> theta) {
  return WithObservation(task, Score(task, theta));
}

TEST(EsTest, StatisticsOfObservationsComeFromAShareOfTheEpisodesAndAreNotEvolved) {
  const NetworkDescription network = Network("normalize, dense 4 tanh", 3, 2);
  size_t recorded = 0, noisy = 0, signs = 0, evaluations = 0;
  double sum = 0;
  FakeEvaluator evaluator(network.parameter_count,
                          [&](const Task& task, std::span<const float> theta) {
                            const bool records = task.episode.record == RecordKind::kObservations;
                            recorded += records, noisy += task.episode.action_noise > 0;
                            signs += task.episode.signs;
                            evaluations += task.role == Role::kEvaluate;
                            if (records) sum += task.policy.id;
                            // means and deviations as they are in every member
                            EXPECT_EQ(theta[network.evolved_count + 3] > 0, true);
                            return Observed(task, theta);
                          });
  const auto es =
      Config({"es.population=400", "es.observation_share=0.25", "es.action_noise=0.1",
              "es.shaping=centered_sign_rank", "es.validation_episodes=7", "es.test_every=0"})
          ->Make({kSeed, network, evaluator, {}});
  const std::vector<float> before = CentreOf(*es);
  EXPECT_EQ(before[network.evolved_count], 0);
  EXPECT_EQ(before[network.evolved_count + 3], 1);
  const GenerationReport report = es->Step(nullptr).ValueOrThrow();
  EXPECT_NEAR(static_cast<double>(recorded), 100, 40);
  EXPECT_EQ(report.metrics["observations_seen"], recorded);
  EXPECT_EQ(noisy, 400U);
  EXPECT_EQ(signs, 400U);
  EXPECT_EQ(evaluations, 7U);
  const std::vector<float> after = CentreOf(*es);
  const double count = static_cast<double>(recorded) + 1e-2;
  EXPECT_NEAR(after[network.evolved_count], sum / count, 1e-3);
  EXPECT_NEAR(after[network.evolved_count + 1], 1, 1e-2);
  EXPECT_NEAR(after[network.evolved_count + 4], 0.1, 1e-6);  // the least deviation
  DisorderlyEvaluator disorderly(network.parameter_count, Observed, {6, 3, 2, 0});
  const auto same =
      Config({"es.population=400", "es.observation_share=0.25", "es.action_noise=0.1",
              "es.shaping=centered_sign_rank", "es.validation_episodes=7", "es.test_every=0"})
          ->Make({kSeed, network, disorderly, {}});
  ASSERT_TRUE(same->Step(nullptr).ok());
  EXPECT_EQ(same->EncodeState(), es->EncodeState());
  ASSERT_TRUE(same->RestoreState(es->EncodeState()).ok());
  const NetworkDescription plain = Network("linear", 3, 2);
  FakeEvaluator other(plain.parameter_count, Score);
  EXPECT_EQ(Small()->Make({kSeed, plain, other, {}})->RestoreState(es->EncodeState()).code(),
            Code::kBadData);
}

TEST(EsTest, NormalizationAndNoiseOnActionsAreTheSameForAnyThreadsAndSlots) {
  const auto factory = Native("Pendulum-v1");
  const std::string line = "normalize, dense 4 tanh";
  const NetworkDescription network = Network(line, 3, 1);
  const auto run = [&](std::unique_ptr<Evaluator> evaluator, const char* noise) {
    const auto es = Config({"es.population=12", "es.observation_share=0.5", noise,
                            "es.shaping=centered_sign_rank", "es.validation_episodes=2"})
                        ->Make({kSeed, network, *evaluator, {}});
    for (int g = 0; g < 2; ++g) EXPECT_TRUE(es->Step(nullptr).ok());
    return es->EncodeState();
  };
  const auto direct = [&](uint32_t threads) {
    return MakeDirectEvaluator(factory, ModelFor(factory, line), threads).ValueOrThrow();
  };
  const std::string one = run(direct(1), "es.action_noise=0.2");
  EXPECT_EQ(run(direct(3), "es.action_noise=0.2"), one);
  EXPECT_EQ(run(MakeSlotEvaluator(MakeThreadFleet(factory, 5, 2).ValueOrThrow(),
                                  ModelFor(factory, line), 2),
                "es.action_noise=0.2"),
            one);
  EXPECT_NE(run(direct(2), "es.action_noise=0.0"), one);
}

TEST(EsTest, RefusesDamagedStatesAndThoseOfAnotherNetwork) {
  const NetworkDescription network = Network("linear", 3, 2), other = Network("linear", 3, 3);
  FakeEvaluator evaluator(network.parameter_count, Score);
  const auto es = Small()->Make({kSeed, network, evaluator, {}});
  const std::string good = es->EncodeState();
  for (size_t size = 0; size < good.size(); ++size)
    ASSERT_EQ(es->RestoreState(std::string_view(good).substr(0, size)).code(), Code::kBadData);
  EXPECT_EQ(es->RestoreState(good + '\0').code(), Code::kBadData);
  EXPECT_EQ(Small()->Make({kSeed, other, evaluator, {}})->RestoreState(good).code(),
            Code::kBadData);
  const auto sgd = Small();  // has no second moments
  ConfigTable table;
  sgd->Bind(table);
  ASSERT_TRUE(table.Override("es.optimizer=sgd_classic").ok());
  EXPECT_EQ(sgd->Make({kSeed, network, evaluator, {}})->RestoreState(good).message(),
            "the recorded state is of another network or optimizer");
  EXPECT_TRUE(es->RestoreState(good).ok());
}

// A state of the third version, which had no statistics, for a network that keeps them.
TEST(EsTest, RefusesAStateWithoutTheStatisticsThatItsNetworkKeeps) {
  const NetworkDescription network = Network("normalize, dense 2 tanh", 3, 2);
  FakeEvaluator evaluator(network.parameter_count, Score);
  const auto es = Small()->Make({kSeed, network, evaluator, {}});
  const std::string now = es->EncodeState();
  const size_t statistics = 4 + 5 * 8 + 3 * (8 + 4 * network.parameter_count) + 8;
  const std::string before = ByteWriter().Put(uint32_t{3}).Take() + now.substr(4, statistics - 4) +
                             now.substr(statistics + 2 * (8 + 3 * 8) + 16);
  EXPECT_EQ(es->RestoreState(before).message(),
            "the recorded state is of another network or optimizer");
  EXPECT_TRUE(es->RestoreState(now).ok());
}

// A state as the first version wrote it: the number of Adam's steps was that of the generations.
TEST(EsTest, ReadsStatesOfTheFirstVersion) {
  const NetworkDescription network = Network("linear", 3, 2);
  FakeEvaluator evaluator(network.parameter_count, Score);
  const auto es = Small()->Make({kSeed, network, evaluator, {}});
  for (int g = 0; g < 3; ++g) ASSERT_TRUE(es->Step(nullptr).ok());
  const std::string now = es->EncodeState();
  // version, five counters, three vectors with their sizes, [steps, empty statistics], mean,
  // [cut-off] and hash
  const size_t steps = 4 + 5 * 8 + 3 * (8 + 4 * network.parameter_count);
  const size_t mean = steps + 8 + 4 * 8;
  const std::string before = ByteWriter().Put(uint32_t{1}).Take() + now.substr(4, steps - 4) +
                             now.substr(mean, 8) + now.substr(mean + 16);
  const auto other = Small()->Make({kSeed, network, evaluator, {}});
  for (size_t size = 0; size < before.size(); ++size)
    EXPECT_EQ(other->RestoreState(before.substr(0, size)).code(), Code::kBadData) << size;
  ASSERT_TRUE(other->RestoreState(before).ok());
  EXPECT_EQ(other->EncodeState(), now);
}

// Episodes of 10 to 13 steps, by their keys.
EpisodeResult Lengths(const Task& task, std::span<const float> theta) {
  const auto steps = static_cast<uint32_t>(10 + task.episode.seed % 4);
  const auto cap = static_cast<uint32_t>(task.episode.frames_max);
  EpisodeResult result = Score(task, theta);
  result.steps = cap > 0 ? std::min(steps, cap) : steps;
  return result;
}

TEST(EsTest, ABatchClosesAtTheFirstRoundThatHasTheSteps) {
  const NetworkDescription network = Network("linear", 3, 2);
  FakeEvaluator evaluator(network.parameter_count, Lengths);
  const auto make = [&](const char* steps, Evaluator& with) {
    return Config({"es.population=8", "es.validation_episodes=1", steps})
        ->Make({kSeed, network, with, {}});
  };
  const auto plain = make("es.min_steps=80", evaluator);
  EXPECT_EQ(plain->Step(nullptr)->fitness.size(), 8U);  // 8 episodes have them
  const auto longer = make("es.min_steps=300", evaluator);
  for (int g = 0; g < 3; ++g) {
    const GenerationReport report = longer->Step(nullptr).ValueOrThrow();
    EXPECT_GE(report.fitness.size(), 24U);  // at most 13 steps each
    EXPECT_LE(report.fitness.size(), 32U);  // at least 10
    EXPECT_EQ(report.fitness.size() % 2, 0U);
    EXPECT_EQ(report.metrics["members"], report.fitness.size());
  }
  DisorderlyEvaluator disorderly(network.parameter_count, Lengths, {5, 3, 2, 100});
  const auto same = make("es.min_steps=300", disorderly);
  for (int g = 0; g < 3; ++g) ASSERT_TRUE(same->Step(nullptr).ok());
  EXPECT_EQ(same->EncodeState(), longer->EncodeState());
}

// Stops in the further rounds too: what had finished is not played again.
TEST(EsTest, ABatchGoesOnFromKeptEpisodes) {
  const NetworkDescription network = Network("linear", 3, 2);
  const auto config = Config({"es.population=8", "es.validation_episodes=1", "es.min_steps=300"});
  FakeEvaluator whole(network.parameter_count, Lengths);
  const auto undisturbed = config->Make({kSeed, network, whole, {}});
  ASSERT_TRUE(undisturbed->Step(nullptr).ok());
  for (size_t fail = 1; fail < whole.played(); fail += 3) {
    std::vector<FinishedEpisodes> disk;
    FakeEvaluator first(network.parameter_count, Lengths), second(network.parameter_count, Lengths);
    const auto stopped = config->Make({kSeed, network, first, {}});
    stopped->KeepFinished(1e9, [&](const FinishedEpisodes& finished) {
      disk.push_back(finished);
      return true;
    });
    first.FailAfter(fail);
    ASSERT_FALSE(stopped->Step(nullptr).ok());
    const auto resumed = config->Make({kSeed, network, second, {}});
    for (const FinishedEpisodes& finished : disk) resumed->Reuse(finished);
    ASSERT_TRUE(resumed->Step(nullptr).ok());
    EXPECT_EQ(resumed->EncodeState(), undisturbed->EncodeState()) << fail;
    EXPECT_EQ(first.played() + second.played(), whole.played()) << fail;
  }
}

TEST(EsTest, TheCutoffGrowsAndBoundsOnlyThePopulation) {
  const NetworkDescription network = Network("linear", 3, 2);
  std::set<std::pair<Role, int64_t>> limits;
  FakeEvaluator evaluator(network.parameter_count,
                          [&](const Task& task, std::span<const float> theta) {
                            limits.insert({task.role, task.episode.frames_max});
                            return Lengths(task, theta);
                          });
  const auto es =
      Config({"es.population=8", "es.validation_episodes=2", "es.cutoff=adaptive:5,0.5,1.5,9"})
          ->Make({kSeed, network, evaluator, {}});
  for (const int expected : {5, 7, 9, 9}) EXPECT_EQ(es->Step(nullptr)->metrics["cutoff"], expected);
  EXPECT_EQ(limits,
            (std::set<std::pair<Role, int64_t>>{
                {Role::kTrain, 5}, {Role::kTrain, 7}, {Role::kTrain, 9}, {Role::kEvaluate, 0}}));
  const auto other =
      Config({"es.cutoff=adaptive:5,0.5,1.5,9"})->Make({kSeed, network, evaluator, {}});
  ASSERT_TRUE(other->RestoreState(es->EncodeState()).ok());
  EXPECT_EQ(other->EncodeState(), es->EncodeState());
  EXPECT_EQ(Config({"es.cutoff=soon"})->Check(network).code(), Code::kConfig);
}

TEST(EsTest, SigmaAndTheLearningRateFollowTheirSchedules) {
  const NetworkDescription network = Network("linear", 3, 2);
  FakeEvaluator evaluator(network.parameter_count, Score);
  const auto es = Config({"es.population=4", "es.validation_episodes=1", "es.sigma=0.4",
                          "es.sigma_schedule=exponential", "es.sigma_end=0.1",
                          "es.learning_rate=0.3", "es.learning_rate_schedule=linear",
                          "es.learning_rate_end=0.1", "es.schedule_length=4"})
                      ->Make({kSeed, network, evaluator, {}});
  const double sigma[] = {0.4, 0.282842712, 0.2, 0.141421356, 0.1, 0.1};
  const double rate[] = {0.3, 0.25, 0.2, 0.15, 0.1, 0.1};
  for (int g = 0; g < 6; ++g) {
    const auto metrics = es->Step(nullptr)->metrics;
    EXPECT_NEAR(metrics["sigma"].get<double>(), sigma[g], 1e-8);
    EXPECT_NEAR(metrics["learning_rate"].get<double>(), rate[g], 1e-12);
  }
}

// Every task is an evaluation: none of the results may be taken for another kind.
TEST(EsTest, PlaysGenerationsThatAreNearlyAllEvaluation) {
  const NetworkDescription network = Network("linear", 3, 2);
  DisorderlyEvaluator evaluator(network.parameter_count, Score, {4, 3, 2, 0});
  const auto es = Config({"es.population=2", "es.validation_episodes=400", "es.test_episodes=300"})
                      ->Make({kSeed, network, evaluator, {}});
  const GenerationReport report = es->Step(nullptr).ValueOrThrow();
  EXPECT_EQ(report.test_returns.size(), 300U);
  EXPECT_EQ(es->summary().episodes, 402U);
  EXPECT_EQ(es->PlayBest(Purpose::kEpisodeTest, 500, nullptr)->size(), 500U);
}

TEST(EsTest, TheTextbookScaleDividesBySigmaToo) {
  const NetworkDescription network = Network("linear", 3, 2);
  FakeEvaluator evaluator(network.parameter_count, Score);
  const auto moved = [&](const char* scale) {
    const auto es = Config({"es.population=8", "es.sigma=0.1", "es.optimizer=sgd",
                            "es.weight_decay=0.0", "es.validation_episodes=1", scale})
                        ->Make({kSeed, network, evaluator, {}});
    const float before = CentreOf(*es)[0];
    EXPECT_TRUE(es->Step(nullptr).ok());
    return CentreOf(*es)[0] - before;
  };
  EXPECT_NEAR(moved("es.grad_scale=textbook"), 10 * moved("es.grad_scale=reference"), 1e-6);
}

TEST(EsTest, RefusesMoreThanItCanNumberOrRecord) {
  const NetworkDescription small = Network("linear", 3, 2);
  EXPECT_TRUE(Small()->Check(small).ok());
  EXPECT_EQ(Small()->Check(Network("mlp-16384-16384-tanh", 4, 2)).code(), Code::kConfig);
  EXPECT_EQ(Config({"es.population=7"})->Check(small).code(), Code::kConfig);
  EXPECT_EQ(Config({"es.population=10000000", "es.episodes=1000"})->Check(small).code(),
            Code::kConfig);
}

}  // namespace
}  // namespace samara::es_test
