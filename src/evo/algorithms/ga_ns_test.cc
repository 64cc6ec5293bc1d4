// The GA with novelty search against a plain reading of its description, and what it promises.
#include "evo/algorithms/ga_ns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "evo/evaluate/evaluate_test_util.h"
#include "evo/genome/decode.h"

namespace samara::ga_ns_test {
namespace {

constexpr uint64_t kSeed = 8;
constexpr int64_t kPopulation = 12, kParents = 4;
constexpr size_t kNeighbours = 5;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Returns and positions of few values, so that ties are common, some of them NaN.
EpisodeResult Invent(const Task& task, std::span<const float> theta) {
  uint64_t x = task.episode.seed % 3;
  for (float w : theta) x = (x ^ std::bit_cast<uint32_t>(w)) * 0x9E3779B97F4A7C15U + 1;
  const uint64_t level = (x >> 40) % 9;
  EpisodeResult result{.fitness = level == 8 ? kNan : static_cast<double>(level),
                       .frames = 1 + level};
  result.position = {static_cast<float>((x >> 20) % 11), static_cast<float>((x >> 30) % 3)};
  if ((x >> 10) % 13 == 0) result.position[0] = std::numeric_limits<float>::quiet_NaN();
  return result;
}

std::unique_ptr<EvolutionConfig> Config(const std::vector<std::string>& more = {}) {
  auto config = MakeGaNsConfig();
  ConfigTable table;
  config->Bind(table);
  const auto set = [&](const std::string& text) {
    const size_t equals = text.find('=');
    EXPECT_TRUE(table.Set(text.substr(0, equals), text.substr(equals + 1)).ok()) << text;
  };
  for (const char* text : {"ga.population=12", "ga.parents=4", "ga.mutation_power=0.5",
                           "novelty.neighbours=5", "novelty.archive_probability=0.2"})
    set(text);
  for (const std::string& text : more) set(text);
  config->budget.test_episodes = 2;
  return config;
}

struct Experiment {
  explicit Experiment(const EvolutionConfig& config, FakeEvaluator::Score score = Invent)
      : evaluator(network.parameter_count, std::move(score)) {
    evaluator.SetPosition(2);
    ga = config.Make({kSeed, network, evaluator, {}});
  }
  // Goes on where `before` is.
  void Restore(const EvolutionAlgorithm& before) {
    ASSERT_TRUE(ga->RestoreArchive(before.EncodeArchive(0)).ok());
    ASSERT_TRUE(ga->RestoreState(before.EncodeState()).ok());
  }
  NetworkDescription network = Network("linear", 3, 2);
  FakeEvaluator evaluator;
  std::unique_ptr<EvolutionAlgorithm> ga;
};

// Whole genomes, all distances, sorted.
class Reference {
 public:
  explicit Reference(const NetworkDescription& network) : network_(network) {}

  void Generation() {
    const uint64_t g = ++generation_;
    std::vector<Genome> members;
    std::vector<double> fitness;
    std::vector<std::vector<float>> positions;
    for (uint64_t i = 0; i < kPopulation; ++i) {
      Genome member{NoiseKind::kNormal,
                    InitKind::kFanIn,
                    DeriveKey(kSeed, Purpose::kInitialGenome, g, i),
                    {}};
      if (!parents_.empty()) {
        const CounterRng rng(DeriveKey(kSeed, Purpose::kParentChoice, g, i));
        member = parents_[rng.UniformInt(0, parents_.size())];
        member.mutations.push_back({DeriveKey(kSeed, Purpose::kMutation, g, i), 0.5F});
      }
      std::vector<float> theta(network_.parameter_count);
      DecodeParameters(member, network_, theta);
      Task task;
      task.episode.seed = DeriveKey(kSeed, Purpose::kEpisodePopulation, g, i);
      const EpisodeResult result = Invent(task, theta);
      members.push_back(member);
      fitness.push_back(result.fitness);
      positions.push_back(result.position);
      if (best_members_.empty() || result.fitness > best_ ||
          (std::isnan(best_) && !std::isnan(result.fitness)))
        best_ = result.fitness, best_members_ = {member};
    }
    std::vector<double> novelty;
    for (size_t i = 0; i < members.size(); ++i) {
      std::vector<double> distances;
      const auto offer = [&](const std::vector<float>& other) {
        const double x = double{other[0]} - double{positions[i][0]},
                     y = double{other[1]} - double{positions[i][1]};
        if (!std::isnan(x) && !std::isnan(y)) distances.push_back(x * x + y * y);
      };
      for (size_t j = 0; j < members.size(); ++j)
        if (j != i) offer(positions[j]);
      for (const auto& entry : archive_) offer(entry);
      std::sort(distances.begin(), distances.end());
      distances.resize(std::min(distances.size(), kNeighbours));
      double sum = 0;
      for (const double d : distances) sum += d;
      novelty.push_back(distances.empty() ? 0 : sum / static_cast<double>(distances.size()));
    }
    parents_.clear();
    std::vector<bool> taken(members.size());
    for (int64_t p = 0; p < kParents; ++p) {
      size_t most = members.size();
      for (size_t i = 0; i < members.size(); ++i)
        if (!taken[i] && (most == members.size() || novelty[i] > novelty[most])) most = i;
      taken[most] = true;
      parents_.push_back(members[most]);
    }
    for (uint64_t i = 0; i < kPopulation; ++i)
      if (CounterRng(DeriveKey(kSeed, Purpose::kArchive, g, i)).Uniform(0) < 0.2)
        archive_.push_back(positions[i]);
    Sha256 hash;
    for (const Genome& genome : members) hash.Update(genome.Encode());
    for (double f : fitness) hash.UpdateU64(std::bit_cast<uint64_t>(f));
    hash.Update(best_members_[0].Encode());
    population_hash = hash.Finish();
  }
  size_t archived() const { return archive_.size(); }
  Digest population_hash{};

 private:
  const NetworkDescription network_;
  uint64_t generation_ = 0;
  std::vector<Genome> parents_, best_members_;
  double best_ = kNan;
  std::vector<std::vector<float>> archive_;
};

TEST(GaNsTest, EveryGenerationIsThatOfThePlainReading) {
  Experiment e(*Config());
  Reference reference(e.network);
  for (int g = 0; g < 12; ++g) {
    ASSERT_TRUE(e.ga->Step(nullptr).ok());
    reference.Generation();
    EXPECT_EQ(Hex(e.ga->summary().population_hash), Hex(reference.population_hash)) << g;
    EXPECT_EQ(e.ga->ArchiveSize(), reference.archived());
  }
  EXPECT_GT(e.ga->ArchiveSize(), 5U);
}

TEST(GaNsTest, TheEliteIsTheBestReturnAndNoParentForIt) {
  // who returns most behaves like everybody
  Experiment e(*Config(), [](const Task& task, std::span<const float>) {
    EpisodeResult result{.fitness = task.policy.id == 3 ? 9.0 : 1.0};
    result.position = {task.policy.id > 7 ? static_cast<float>(task.policy.id * 10) : 0.0F, 0};
    return result;
  });
  ASSERT_TRUE(e.ga->Step(nullptr).ok());
  const auto elite = std::get<Genome>(e.ga->summary().best);
  EXPECT_EQ(e.ga->summary().best_mean, 9);
  const auto report = e.ga->Step(nullptr).ValueOrThrow();
  EXPECT_EQ(std::get<Genome>(e.ga->summary().best), elite);  // an equal return does not replace it
  EXPECT_EQ(report.evaluations, 12U);
  EXPECT_EQ(report.positions.size(), 24U);
  EXPECT_EQ(report.positions[22], 110);
}

TEST(GaNsTest, FewerNeighboursThanAskedForAndAPopulationOfOne) {
  for (const char* population : {"ga.population=1", "ga.population=2", "ga.population=4"}) {
    Experiment e(*Config({population, "novelty.neighbours=25", "novelty.archive_probability=0"}));
    for (int g = 0; g < 3; ++g) ASSERT_TRUE(e.ga->Step(nullptr).ok()) << population;
    EXPECT_EQ(e.ga->ArchiveSize(), 0U);
  }
  Experiment all(*Config({"novelty.archive_probability=1"}));
  ASSERT_TRUE(all.ga->Step(nullptr).ok());
  EXPECT_EQ(all.ga->ArchiveSize(), 12U);
}

TEST(GaNsTest, AStopAnywhereChangesNothing) {
  Experiment undisturbed(*Config());
  for (int g = 0; g < 3; ++g) ASSERT_TRUE(undisturbed.ga->Step(nullptr).ok());
  for (size_t after = 0; after < 16; ++after) {
    Experiment e(*Config());
    for (int g = 0; g < 2; ++g) ASSERT_TRUE(e.ga->Step(nullptr).ok());
    const std::string state = e.ga->EncodeState(), archive = e.ga->EncodeArchive(0);
    const size_t before = e.evaluator.played();
    const auto stop = [&] { return e.evaluator.played() >= before + after; };
    const auto stopped = e.ga->Step(stop);
    if (after < 14) {
      EXPECT_EQ(stopped.status().code(), Code::kTryAgain) << after;
      EXPECT_EQ(e.ga->EncodeState(), state);
      EXPECT_EQ(e.ga->EncodeArchive(0), archive);
      ASSERT_TRUE(e.ga->Step(nullptr).ok());
    }
    EXPECT_EQ(e.ga->EncodeState(), undisturbed.ga->EncodeState()) << after;
  }
}

TEST(GaNsTest, AnotherProcessGoesOnWithTheSameBits) {
  Experiment undisturbed(*Config());
  auto running = std::make_unique<Experiment>(*Config());
  for (int g = 0; g < 6; ++g) {
    ASSERT_TRUE(undisturbed.ga->Step(nullptr).ok());
    auto next = std::make_unique<Experiment>(*Config());
    next->Restore(*running->ga);
    ASSERT_TRUE(next->ga->Step(nullptr).ok());
    running = std::move(next);
    EXPECT_EQ(running->ga->EncodeState(), undisturbed.ga->EncodeState());
  }
  // without its archive, with another one, damaged
  Experiment other(*Config());
  const std::string state = running->ga->EncodeState();
  EXPECT_EQ(other.ga->RestoreState(state).code(), Code::kBadData);
  std::string archive = running->ga->EncodeArchive(0);
  archive.back() = static_cast<char>(archive.back() ^ 1);
  ASSERT_TRUE(other.ga->RestoreArchive(archive).ok());
  EXPECT_EQ(other.ga->RestoreState(state).message(),
            "the recorded archive of behaviours is not the one of the state");
  for (size_t size = 0; size < state.size(); size += 7)
    EXPECT_EQ(DescribeGaNs(state.substr(0, size)).status().code(), Code::kBadData);
  EXPECT_EQ(DescribeGaNs(state).ValueOrThrow().generation, 6U);
}

TEST(GaNsTest, OrderAndThreadsChangeNothing) {
  Experiment expected(*Config());
  for (int g = 0; g < 4; ++g) ASSERT_TRUE(expected.ga->Step(nullptr).ok());
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const NetworkDescription network = Network("linear", 3, 2);
    DisorderlyEvaluator evaluator(network.parameter_count, Invent, {seed, 3, 2, 20});
    evaluator.SetPosition(2);
    const auto ga = Config()->Make({kSeed, network, evaluator, {}});
    for (int g = 0; g < 4; ++g) ASSERT_TRUE(ga->Step(nullptr).ok());
    EXPECT_EQ(ga->EncodeState(), expected.ga->EncodeState());
  }
}

TEST(GaNsTest, RecordingsOfMemoryAreRefused) {
  EnvironmentSpec game;
  game.id = "atari/frostbite", game.memory = 128;
  const Status status =
      Config({"novelty.behaviour=ram"})->Records(game, Network("linear", 3, 2)).status();
  EXPECT_EQ(status.code(), Code::kConfig);
  EXPECT_NE(status.message().find("expected final_position or trajectory"), std::string::npos);
}

}  // namespace
}  // namespace samara::ga_ns_test
