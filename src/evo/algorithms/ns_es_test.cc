// Novelty search by evolution strategies against a plain reading of the paper's Algorithms 1 to 3,
// and what it promises.
#include "evo/algorithms/ns_es.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "evo/algorithms/ascent.h"
#include "evo/evaluate/evaluate_test_util.h"
#include "evo/genome/decode.h"

namespace samara::ns_es_test {
namespace {

constexpr uint64_t kSeed = 5;
constexpr size_t kMembers = 12, kCentres = 3, kNeighbours = 4, kRollouts = 2;
constexpr double kSigma = 0.3, kRate = 0.05, kDecay = 0.01;
constexpr size_t kMemory = 16;

// Smooth in the parameters; the seed shifts a little.
EpisodeResult Play(const Task& task, std::span<const float> theta) {
  const auto shift = static_cast<double>(task.episode.seed % 16) / 64;
  double sum = 0;
  for (float w : theta) sum += w;
  EpisodeResult result{
      .fitness = -std::abs(static_cast<double>(theta[0]) - 1) + shift, .frames = 3, .steps = 2};
  result.position = {static_cast<float>(sum + shift), 2 * theta[1]};
  if (task.episode.record == RecordKind::kMemory) {
    const auto rows = static_cast<size_t>(2 + task.episode.seed % 3);
    result.recording.resize(rows * kMemory);
    for (size_t i = 0; i < result.recording.size(); ++i)
      result.recording[i] = static_cast<std::byte>(static_cast<int>(64 * theta[i % theta.size()]) +
                                                   static_cast<int>(i / kMemory));
  }
  return result;
}

using Make = std::unique_ptr<EvolutionConfig> (*)();

std::unique_ptr<EvolutionConfig> Config(Make make, const std::vector<std::string>& more = {}) {
  auto config = make();
  ConfigTable table;
  config->Bind(table);
  const auto set = [&](const std::string& text) {
    const size_t equals = text.find('=');
    EXPECT_TRUE(table.Set(text.substr(0, equals), text.substr(equals + 1)).ok()) << text;
  };
  for (const char* text :
       {"es.population=12", "es.sigma=0.3", "es.learning_rate=0.05", "es.weight_decay=0.01",
        "es.validation_episodes=2", "novelty.neighbours=4", "novelty.centres=3"})
    set(text);
  for (const std::string& text : more) set(text);
  config->budget.test_episodes = 2;
  return config;
}

struct Experiment {
  explicit Experiment(const EvolutionConfig& config, FakeEvaluator::Score score = Play)
      : evaluator(network.parameter_count, std::move(score)) {
    evaluator.SetPosition(2);
    evaluator.SetMemory(kMemory);
    EpisodeRule episodes;
    episodes.record = config.Records(evaluator.spec(), network).ValueOrThrow();
    es = config.Make({kSeed, network, evaluator, episodes});
  }
  void Restore(const EvolutionAlgorithm& before) {
    ASSERT_TRUE(es->RestoreArchive(before.EncodeArchive(0)).ok());
    ASSERT_TRUE(es->RestoreState(before.EncodeState()).ok());
  }
  NetworkDescription network = Network("linear", 3, 2);
  FakeEvaluator evaluator;
  std::unique_ptr<EvolutionAlgorithm> es;
};

// Everything in double, nothing shared.
class Reference {
 public:
  // Members of a generation; ends of the linear schedules of sigma and rate, after ten generations.
  struct Settings {
    size_t members = kMembers;
    double sigma_end = kSigma, rate_end = kRate;
  };
  Reference(const NetworkDescription& network, double reward, Settings settings)
      : network_(network), reward_(reward), settings_(settings) {
    for (uint64_t m = 0; m < kCentres; ++m) {
      Centre centre;
      Genome initial;
      initial.initial = DeriveKey(kSeed, Purpose::kInitialGenome, 1, m);
      centre.theta.resize(network.parameter_count);
      InitialParameters(initial, network, centre.theta);
      centre.m = centre.v = std::vector<double>(network.parameter_count);
      centres_.push_back(centre);
    }
  }

  void Generation() {
    const double elapsed = std::min(1.0, static_cast<double>(generation_) / 10);
    const double sigma = kSigma + (settings_.sigma_end - kSigma) * elapsed;
    const double rate_now = kRate + (settings_.rate_end - kRate) * elapsed;
    const size_t members = settings_.members;
    const uint64_t g = ++generation_;
    if (g == 1)
      for (uint64_t m = 0; m < kCentres; ++m) Enter(centres_[m], kMembers + m);
    // pick
    std::vector<double> novelty;
    double sum = 0;
    for (const Centre& c : centres_) novelty.push_back(Novelty(c.behaviour)), sum += novelty.back();
    const double u = CounterRng(DeriveKey(kSeed, Purpose::kCentreChoice, g, 0)).Uniform(0) * sum;
    size_t chosen = 0;
    for (double below = novelty[0]; chosen + 1 < kCentres && below <= u; below += novelty[chosen])
      ++chosen;
    Centre& centre = centres_[chosen];
    // play
    std::vector<std::vector<float>> noise;
    std::vector<double> fitness, novelties;
    for (uint64_t i = 0; i < members; ++i) {
      if (i % 2 == 0) {
        noise.emplace_back(network_.parameter_count);
        GetNoise(NoiseKind::kNormal)
            .Add(DeriveKey(kSeed, Purpose::kMutation, g, i / 2), 1, 0, noise.back(), noise.back());
      }
      std::vector<float> theta = centre.theta;
      for (size_t p = 0; p < theta.size(); ++p)
        theta[p] += static_cast<float>(i % 2 == 0 ? sigma : -sigma) * noise.back()[p];
      const EpisodeResult r = PlayOne(theta, Purpose::kEpisodePopulation, i, 0);
      fitness.push_back(r.fitness);
      novelties.push_back(Novelty({r.position[0], r.position[1]}));
    }
    // ascend
    const auto f = Ranks(fitness), n = Ranks(novelties);
    std::vector<double> gradient(network_.parameter_count);
    for (size_t j = 0; j < members / 2; ++j) {
      const auto w = [&](size_t i) { return reward_ * f[i] + (1 - reward_) * n[i]; };
      for (size_t p = 0; p < gradient.size(); ++p)
        gradient[p] += (w(2 * j) - w(2 * j + 1)) * static_cast<double>(noise[j][p]) /
                       static_cast<double>(members);
    }
    ++centre.steps;
    for (size_t p = 0; p < gradient.size(); ++p) {
      const double d = kDecay * static_cast<double>(centre.theta[p]) - gradient[p];
      centre.m[p] = 0.9 * centre.m[p] + 0.1 * d;
      centre.v[p] = 0.999 * centre.v[p] + 0.001 * d * d;
      const double rate = rate_now * std::sqrt(1 - std::pow(0.999, centre.steps)) /
                          (1 - std::pow(0.9, centre.steps));
      centre.theta[p] -= static_cast<float>(rate * centre.m[p] / (std::sqrt(centre.v[p]) + 1e-8));
    }
    Enter(centre, kMembers + kCentres);
    last = chosen;
  }

  size_t last = 0;
  const std::vector<float>& theta(size_t m) const { return centres_[m].theta; }
  const std::vector<float>& best() const { return best_; }

 private:
  struct Centre {
    std::vector<float> theta;
    std::vector<double> m, v;
    int steps = 0;
    std::vector<double> behaviour;
  };

  EpisodeResult PlayOne(const std::vector<float>& theta, Purpose purpose, uint64_t individual,
                        uint64_t episode) const {
    Task task;
    task.episode.seed = DeriveKey(kSeed, purpose, generation_, individual, episode);
    return Play(task, theta);
  }

  void Enter(Centre& centre, uint64_t individual) {
    std::vector<double> mean(2);
    double fitness = 0;
    for (uint64_t e = 0; e < kRollouts; ++e) {
      const auto r = PlayOne(centre.theta, Purpose::kEpisodeValidation, individual, e);
      for (size_t d = 0; d < 2; ++d) mean[d] += static_cast<double>(r.position[d]) / kRollouts;
      fitness += r.fitness / kRollouts;
    }
    centre.behaviour = {static_cast<double>(static_cast<float>(mean[0])),
                        static_cast<double>(static_cast<float>(mean[1]))};
    archive_.push_back(centre.behaviour);
    if (best_.empty() || fitness > best_fitness_) best_ = centre.theta, best_fitness_ = fitness;
  }

  double Novelty(const std::vector<double>& b) const {
    std::vector<double> d;
    for (const auto& a : archive_) d.push_back(std::hypot(a[0] - b[0], a[1] - b[1]));
    std::sort(d.begin(), d.end());
    d.resize(std::min(d.size(), kNeighbours));
    double sum = 0;
    for (const double x : d) sum += x;
    return sum / static_cast<double>(d.size());
  }

  static std::vector<double> Ranks(const std::vector<double>& x) {
    std::vector<double> ranks;
    for (const double a : x) {
      double below = 0, same = 0;
      for (const double b : x) below += b < a, same += b == a;
      ranks.push_back((below + (same - 1) / 2) / static_cast<double>(x.size() - 1) - 0.5);
    }
    return ranks;
  }

  const NetworkDescription network_;
  const double reward_;
  const Settings settings_;
  uint64_t generation_ = 0;
  std::vector<Centre> centres_;
  std::vector<std::vector<double>> archive_;
  std::vector<float> best_;
  double best_fitness_ = 0;
};

void ExpectSameBest(const EvolutionAlgorithm& es, const Reference& reference, size_t generation) {
  const EvolutionSummary summary = es.summary();
  const auto& best = std::get<std::vector<float>>(summary.best);
  for (size_t p = 0; p < best.size(); ++p)
    ASSERT_NEAR(best[p], reference.best()[p], 2e-5) << generation << ", " << p;
}

TEST(NsEsTest, EveryGenerationIsThatOfThePlainReading) {
  const struct {
    Make make;
    double reward;
  } kinds[] = {{MakeNsEsConfig, 0}, {MakeNsrEsConfig, 0.5}, {MakeNsraEsConfig, 1}};
  for (const auto& kind : kinds) {
    Experiment e(*Config(kind.make));
    Reference reference(e.network, kind.reward, {});
    std::set<size_t> chosen;
    for (size_t g = 0; g < 15; ++g) {
      const auto report = e.es->Step(nullptr).ValueOrThrow();
      reference.Generation();
      ASSERT_EQ(report.metrics["centre"], reference.last) << g;
      chosen.insert(reference.last);
      EXPECT_EQ(e.es->ArchiveSize(), kCentres + g + 1);
      EXPECT_EQ(report.evaluations, kMembers);
      ASSERT_NO_FATAL_FAILURE(ExpectSameBest(*e.es, reference, g));
    }
    EXPECT_GT(chosen.size(), 1U);
  }
}

// 12 members make 24 steps: two more pairs are expected to make the six that are missing.
TEST(NsEsTest, BatchesCutOffsAndSchedulesAreThoseOfThePlainReading) {
  std::set<int64_t> limits, of_centres;
  const auto score = [&](const Task& task, std::span<const float> theta) {
    if (task.role == Role::kTrain)
      limits.insert(task.episode.frames_max);
    else
      of_centres.insert(task.episode.frames_max);
    return Play(task, theta);
  };
  const std::vector<std::string> settings = {
      "es.min_steps=30",      "es.cutoff=adaptive:2,0.5,2,8",     "es.sigma_schedule=linear",
      "es.sigma_end=0.1",     "es.learning_rate_schedule=linear", "es.learning_rate_end=0.01",
      "es.schedule_length=10"};
  Experiment e(*Config(MakeNsrEsConfig, settings), score);
  Reference reference(e.network, 0.5, {.members = 16, .sigma_end = 0.1, .rate_end = 0.01});
  for (size_t g = 0; g < 15; ++g) {
    limits.clear();
    Experiment resumed(*Config(MakeNsrEsConfig, settings));
    resumed.Restore(*e.es);
    const auto report = e.es->Step(nullptr).ValueOrThrow();
    ASSERT_TRUE(resumed.es->Step(nullptr).ok());
    EXPECT_EQ(resumed.es->EncodeState(), e.es->EncodeState());
    reference.Generation();
    ASSERT_EQ(report.metrics["centre"], reference.last) << g;
    EXPECT_EQ(report.metrics["members"], 16);
    EXPECT_EQ(report.fitness.size(), 16U);
    // every episode of two steps reached the first limit, none the second
    const int64_t cutoff = g == 0 ? 2 : 4;
    EXPECT_EQ(report.metrics["cutoff"], cutoff);
    EXPECT_EQ(limits, std::set{cutoff * e.evaluator.spec().frames_per_step});
    EXPECT_TRUE(of_centres.contains(8 * e.evaluator.spec().frames_per_step));
    ASSERT_NO_FATAL_FAILURE(ExpectSameBest(*e.es, reference, g));
  }
}

// Version 1 ended before the cut-off.
TEST(NsEsTest, StatesOfTheFirstVersionAreRead) {
  Experiment e(*Config(MakeNsEsConfig)), other(*Config(MakeNsEsConfig));
  ASSERT_TRUE(e.es->Step(nullptr).ok());
  std::string former = e.es->EncodeState();
  former[0] = 1;
  former.resize(former.size() - sizeof(int64_t));
  ASSERT_TRUE(other.es->RestoreArchive(e.es->EncodeArchive(0)).ok());
  ASSERT_TRUE(other.es->RestoreState(former).ok());
  EXPECT_EQ(other.es->EncodeState(), e.es->EncodeState());
}

TEST(NsEsTest, RoundRobinTakesTheCentresInTurn) {
  Experiment e(*Config(MakeNsEsConfig, {"novelty.pick=round_robin"}));
  for (size_t g = 0; g < 7; ++g)
    EXPECT_EQ(e.es->Step(nullptr).ValueOrThrow().metrics["centre"], g % kCentres);
}

// A reward that never gets better lowers the weight, one that always does raises it, within [0, 1].
TEST(NsEsTest, TheWeightOfTheRewardAdapts) {
  double reward = 0;
  const auto score = [&](const Task& task, std::span<const float> theta) {
    EpisodeResult result = Play(task, theta);
    result.fitness = task.role == Role::kEvaluate ? reward : 0;
    return result;
  };
  Experiment e(*Config(MakeNsraEsConfig, {"novelty.patience=3", "novelty.weight_step=0.4"}), score);
  std::vector<double> weights;
  for (int g = 0; g < 18; ++g) {
    if (g >= 12) reward += 1;
    weights.push_back(e.es->Step(nullptr).ValueOrThrow().metrics["reward_weight"]);
  }
  const std::vector<double> expected = {1, 1, 1, 0.6, 0.6, 0.6, 0.2, 0.2, 0.2,
                                        0, 0, 0, 0,   0.4, 0.8, 1,   1,   1};
  for (size_t g = 0; g < expected.size(); ++g) EXPECT_NEAR(weights[g], expected[g], 1e-12) << g;
}

TEST(NsEsTest, CentresThatBehaveAlikeAndReturnsThatAreNoNumbers) {
  const auto alike = [](const Task& task, std::span<const float>) {
    EpisodeResult result{.fitness = task.policy.id % 3 == 0
                                        ? std::numeric_limits<double>::quiet_NaN()
                                        : static_cast<double>(task.policy.id)};
    result.position = {1, 2};
    return result;
  };
  for (const Make make : {MakeNsEsConfig, MakeNsrEsConfig, MakeNsraEsConfig}) {
    Experiment e(*Config(make, {"es.weight_decay=0"}), alike);
    std::set<size_t> chosen;
    for (int g = 0; g < 12; ++g) {
      const auto report = e.es->Step(nullptr).ValueOrThrow();
      chosen.insert(report.metrics["centre"].get<size_t>());
      EXPECT_EQ(report.metrics["centre_novelty"], 0);
      const EvolutionSummary summary = e.es->summary();
      for (const float w : std::get<std::vector<float>>(summary.best))
        EXPECT_TRUE(std::isfinite(w));
    }
    EXPECT_EQ(chosen.size(), kCentres);  // all alike likely
  }
}

TEST(NsEsTest, AStopAnywhereChangesNothing) {
  for (const int generations : {1, 3}) {
    Experiment undisturbed(*Config(MakeNsraEsConfig));
    for (int g = 0; g < generations; ++g) ASSERT_TRUE(undisturbed.es->Step(nullptr).ok());
    const size_t episodes =
        kMembers + kRollouts + 2 + (generations == 1 ? kCentres * kRollouts : 0);
    for (size_t after = 0; after <= episodes; ++after) {
      Experiment e(*Config(MakeNsraEsConfig));
      for (int g = 1; g < generations; ++g) ASSERT_TRUE(e.es->Step(nullptr).ok());
      const std::string state = e.es->EncodeState(), archive = e.es->EncodeArchive(0);
      ASSERT_EQ(e.es->EpisodesOfNext(), episodes);
      const size_t before = e.evaluator.played();
      const auto stopped = e.es->Step([&] { return e.evaluator.played() >= before + after; });
      if (after < episodes) {
        EXPECT_EQ(stopped.status().code(), Code::kTryAgain) << after;
        EXPECT_EQ(e.es->EncodeState(), state);
        EXPECT_EQ(e.es->EncodeArchive(0), archive);
        ASSERT_TRUE(e.es->Step(nullptr).ok());
        EXPECT_EQ(e.evaluator.played(), before + episodes);  // nothing was played twice
      }
      EXPECT_EQ(e.es->EncodeState(), undisturbed.es->EncodeState()) << after;
    }
  }
}

TEST(NsEsTest, AnotherProcessGoesOnWithTheSameBits) {
  for (const Make make : {MakeNsEsConfig, MakeNsrEsConfig, MakeNsraEsConfig}) {
    Experiment undisturbed(*Config(make));
    auto running = std::make_unique<Experiment>(*Config(make));
    size_t bytes = 0;
    for (int g = 0; g < 6; ++g) {
      ASSERT_TRUE(undisturbed.es->Step(nullptr).ok());
      auto next = std::make_unique<Experiment>(*Config(make));
      next->Restore(*running->es);
      ASSERT_TRUE(next->es->Step(nullptr).ok());
      running = std::move(next);
      EXPECT_EQ(running->es->EncodeState(), undisturbed.es->EncodeState());
      // what a generation records does not grow with the archive
      if (g == 0) bytes = running->es->EncodeState().size();
      EXPECT_EQ(running->es->EncodeState().size(), bytes);
      EXPECT_EQ(running->es->EncodeArchive(running->es->ArchiveSize() - 1).size(), 16U);
    }
    const std::string state = running->es->EncodeState();
    Experiment other(*Config(make));
    EXPECT_EQ(other.es->RestoreState(state).code(), Code::kBadData);  // without its archive
    EXPECT_EQ(Experiment(*Config(make, {"novelty.centres=2"})).es->RestoreState(state).code(),
              Code::kBadData);
    for (size_t size = 0; size < state.size(); size += 11)
      EXPECT_EQ(DescribeNsEs(state.substr(0, size)).status().code(), Code::kBadData);
    std::string many = state;  // more centres than there may be: after version and five counters
    many.replace(4 + 5 * 8, 8, 8, '\xff');
    EXPECT_EQ(DescribeNsEs(many).status().message(),
              "the recorded state of the evolution is damaged");
    // an archive of as many behaviours, one of which is another
    std::string archive = running->es->EncodeArchive(0);
    archive.back() = static_cast<char>(archive.back() ^ 1);
    ASSERT_TRUE(other.es->RestoreArchive(archive).ok());
    EXPECT_EQ(other.es->RestoreState(state).message(),
              "the recorded archive of behaviours is not the one of the state");
    Experiment sgd(*Config(make, {"es.optimizer=sgd_classic"}));
    EXPECT_EQ(sgd.es->RestoreState(state).message(),
              "the recorded state is of another network, optimizer or number of centres");
    EXPECT_EQ(DescribeNsEs(state).ValueOrThrow().generation, 6U);
  }
}

// A recording is measured where its episode was played: neither disk nor the generation keeps it.
TEST(NsEsTest, RecordingsOfMembersBecomeNumbersAtOnce) {
  const auto config = Config(MakeNsEsConfig, {"novelty.behaviour=ram"});
  Experiment undisturbed(*config);
  for (int g = 0; g < 4; ++g) ASSERT_TRUE(undisturbed.es->Step(nullptr).ok());
  Experiment e(*config);
  std::vector<std::string> disk;
  const auto keep = [&](const FinishedEpisodes& finished) {
    for (const auto& [index, result] : finished.results) {
      EXPECT_EQ(result.recording.empty(), finished.phase != Phase::kValidation);
      EXPECT_EQ(result.novelty > 0, finished.phase == Phase::kPopulation);
    }
    disk.push_back(finished.Encode());
    return true;
  };
  for (int g = 0; g < 3; ++g) {
    e.es->KeepFinished(0, keep);
    ASSERT_TRUE(e.es->Step(nullptr).ok());
  }
  disk.clear();
  const size_t before = e.evaluator.played();
  ASSERT_FALSE(e.es->Step([&] { return e.evaluator.played() > before + 7; }).ok());
  Experiment resumed(*config);
  resumed.Restore(*e.es);
  for (const std::string& record : disk)
    resumed.es->Reuse(FinishedEpisodes::Decode(record).ValueOrThrow());
  ASSERT_TRUE(resumed.es->Step(nullptr).ok());
  EXPECT_EQ(resumed.es->EncodeState(), undisturbed.es->EncodeState());
  EXPECT_LT(resumed.evaluator.played(), kMembers);
}

TEST(NsEsTest, OrderAndThreadsChangeNothing) {
  for (const char* behaviour : {"novelty.behaviour=ram", "novelty.behaviour=final_position"}) {
    const auto config = Config(MakeNsrEsConfig, {behaviour});
    Experiment expected(*config);
    for (int g = 0; g < 4; ++g) ASSERT_TRUE(expected.es->Step(nullptr).ok());
    for (uint64_t seed = 0; seed < 3; ++seed) {
      DisorderlyEvaluator evaluator(expected.network.parameter_count, Play, {seed, 3, 2, 20});
      evaluator.SetPosition(2);
      evaluator.SetMemory(kMemory);
      EpisodeRule episodes;
      episodes.record = config->Records(evaluator.spec(), expected.network).ValueOrThrow();
      const auto es = config->Make({kSeed, expected.network, evaluator, episodes});
      for (int g = 0; g < 4; ++g) ASSERT_TRUE(es->Step(nullptr).ok());
      EXPECT_EQ(es->EncodeState(), expected.es->EncodeState());
    }
  }
}

}  // namespace
}  // namespace samara::ns_es_test
